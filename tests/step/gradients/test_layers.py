"""Every rule of the book-keeping engine against the float64 reference, over shapes that vary."""

from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.standardised import StandardisedConv2d
from dpbench.step.gradients import EngineFallback, PerExampleShift, engine, make_engine
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.layers import patches
from dpbench.step.gradients.layers.convolution import Convolution
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.parameters import Parameters

TOLERANCE = 1e-9  # of float64 sums; Gram norms are rounded up by less


def sum_of_squares(outputs, targets):
    """A loss with a curvature, for outputs of any shape."""
    weights = torch.linspace(0.5, 1.5, outputs[0].numel(), dtype=outputs.dtype)
    return ((outputs.flatten(1) * weights - targets.unsqueeze(1)) ** 2).sum(1)


def batch_of(inputs):
    targets = torch.arange(len(inputs)) % 3
    return Batch(inputs, targets, torch.zeros_like(targets))


def agree(model, inputs, views=1, spread=0.5):
    """Ghost and reference agree in everything a method can ask of them, here and at each example's
    own place; float64."""
    model = model.double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0, spread)
    parameters, batch = Parameters(model), batch_of(inputs)
    ghost = Ghost(model, sum_of_squares, parameters, views)
    loop = Loop(model, sum_of_squares, parameters, views)
    ours, reference = ghost(batch), loop(batch)
    answer_alike(ours, reference, parameters)
    scales = torch.linspace(0.1, 0.2, len(inputs)).double() / reference.norms.clamp(min=1)
    theta = parameters.theta.detach().clone()
    answer_alike(
        ghost(batch, PerExampleShift(ours, scales)),
        loop(batch, PerExampleShift(reference, scales)),
        parameters,
    )
    assert torch.equal(parameters.theta, theta)
    answer_alike(ghost(batch), reference, parameters)


def answer_alike(ours, reference, parameters):
    examples = len(reference.losses)
    each, vector = torch.rand(examples).double(), torch.randn(len(parameters)).double()
    per_layer = torch.rand(examples, len(parameters.layers)).double()
    pairs = [
        (ours.losses, reference.losses),
        (ours.norms, reference.norms),
        (ours.layer_norms, reference.layer_norms),
        (ours.weighted_sum(each), reference.weighted_sum(each)),
        (ours.weighted_sum(per_layer), reference.weighted_sum(per_layer)),
        (ours.dot(vector), reference.dot(vector)),
        (ours.stack(), reference.stack()),
        (torch.cat(list(ours.blocks()), 1), reference.stack()),
    ]
    for mine, right in pairs:
        assert torch.allclose(mine, right, rtol=TOLERANCE, atol=TOLERANCE)


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).double()


@contextmanager
def convolutions(by):
    """Convolutions have one group for each example, or are products in blocks of one example, or
    have norms from products of positions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Convolution, "_by_products", by == "products")
        if by == "positions":
            patch.setattr(Convolution, "by_positions", property(without_groups))
        if by == "products":
            patch.setattr(patches, "GROUPED", ())  # patches and shifted passes, too
            patch.setattr(engine, "CPU_BLOCK", 1)
        yield


def without_groups(gradient):
    return gradient._weight is None and gradient.module.groups == 1


EXAMPLES = st.integers(1, 3)
CHANNELS = st.sampled_from([2, 4, 6])
SMALL = st.integers(1, 3)


CONVOLUTIONS = st.sampled_from([(nn.Conv1d, (9,)), (nn.Conv2d, (7, 8))])


@pytest.mark.slow
@settings(deadline=None, max_examples=240)
@given(
    st.sampled_from(["groups", "products", "positions"]),
    CONVOLUTIONS,
    EXAMPLES,
    *(SMALL, CHANNELS, CHANNELS, SMALL, SMALL, SMALL, st.integers(0, 2), st.booleans()),
)
def test_convolution(by, kind, examples, views, i, o, kernel, stride, dilation, padding, bias):
    groups = 2 if kernel == 2 else 1
    convolution_of, sides = kind
    module = convolution_of(i, o, kernel, stride, padding, dilation, groups, bias)
    rows = (examples, views) if views > 1 else (examples,)
    with convolutions(by):
        agree(nn.Sequential(module, nn.Tanh()), numbers(*rows, i, *sides), views)


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("by", ["groups", "products", "positions"])
def test_standardised_convolution(by, views, bias, flat):
    module = StandardisedConv2d(4, 6, 3, 2, 1, bias=bias)
    rows = (2, views) if views > 1 else (2,)
    # The smaller one is so flat that the spread of every kernel is held at its floor.
    spread = 1e-4 if flat else 0.5
    with convolutions(by):
        agree(nn.Sequential(module, nn.Tanh()), numbers(*rows, 4, 7, 5), views, spread)


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(EXAMPLES, SMALL, st.lists(st.integers(1, 5), max_size=2), CHANNELS, CHANNELS, st.booleans())
def test_linear(examples, views, axes, i, o, bias):
    rows = (examples, views) if views > 1 else (examples,)
    agree(nn.Sequential(nn.Linear(i, o, bias), nn.Tanh()), numbers(*rows, *axes, i), views)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(EXAMPLES, SMALL, st.integers(1, 6), st.sampled_from([None, 0, 2]))
def test_embedding(examples, views, positions, padding):
    rows = (examples, views) if views > 1 else (examples,)
    draw = torch.Generator().manual_seed(positions)
    inputs = torch.randint(4, (*rows, positions), generator=draw)
    agree(nn.Sequential(nn.Embedding(4, 3, padding_idx=padding), nn.Tanh()), inputs, views)


NORMS = {
    "group": lambda: nn.GroupNorm(2, 4),
    "instance 2d": lambda: nn.InstanceNorm2d(4, affine=True),
    "layer": lambda: nn.LayerNorm([4, 3, 5]),
    "layer without bias": lambda: nn.LayerNorm(5, bias=False),
    "rms": lambda: nn.RMSNorm(5),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("views", [1, 3])
def test_normalisation(name, views):
    rows = (2, views) if views > 1 else (2,)
    agree(nn.Sequential(NORMS[name](), nn.Tanh()), numbers(*rows, 4, 3, 5), views)


def test_instance_norm_of_sequences():
    agree(nn.Sequential(nn.InstanceNorm1d(4, affine=True), nn.Tanh()), numbers(2, 4, 5))


class Positions(nn.Module):
    """A class token and a position embedding, used the way vision transformers use them."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 4))
        self.positions = nn.Parameter(torch.zeros(1, 4, 4))
        self.head = nn.Linear(4, 3)

    def forward(self, inputs):
        token = self.token.expand(len(inputs), -1, -1)
        return self.head(torch.tanh(torch.cat([token, inputs], 1) + self.positions))


@pytest.mark.parametrize("views", [1, 3])
def test_bare_parameters(views):
    rows = (2, views) if views > 1 else (2,)
    agree(Positions(), numbers(*rows, 3, 4), views)


class Scale(nn.Module):
    """A module with a parameter of its own and no rule."""

    def __init__(self, inner=None):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.inner = inner

    def forward(self, inputs):
        scaled = torch.sin(inputs * self.scale)
        return scaled if self.inner is None else self.inner(scaled)


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("inner", [None, nn.Sequential(nn.Linear(4, 4), nn.Tanh())])
def test_a_module_without_a_rule_is_materialised_alone(inner, views):
    rows = (2, views) if views > 1 else (2,)
    model = nn.Sequential(nn.Linear(4, 4), Scale(inner), nn.Linear(4, 3))
    agree(model, numbers(*rows, 4), views)


def test_a_module_without_a_rule_is_named_and_frozen_parameters_take_no_part():
    model = nn.Sequential(nn.Linear(4, 4), Scale(), nn.Linear(4, 3))
    with pytest.warns(EngineFallback, match="no rule for 1; materialising"):
        engine = make_engine("ghost", model, sum_of_squares, batch_of(torch.rand(2, 4)))
    assert (engine.name, engine.fallbacks) == ("ghost", ["1"])
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.LayerNorm(4))
    for parameter in [*model[0].parameters(), model[3].bias]:
        parameter.requires_grad_(False)
    agree(model, numbers(3, 4))


class Dropping(nn.Linear):
    """Without a dropout layer, and with a parameter that is named like a dropout's rate."""

    def __init__(self):
        super().__init__(4, 4)
        self.p = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return nn.functional.dropout(super().forward(x) * self.p, 0.5, self.training)


@pytest.mark.parametrize(
    "inner", [nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), Dropping()], ids=["layer", "call"]
)
def test_a_module_without_a_rule_that_draws_random_numbers_is_left_to_vmap(inner):
    model = nn.Sequential(nn.Linear(4, 4), Scale(inner))
    with pytest.warns(EngineFallback, match="draws random numbers"):
        engine = make_engine("ghost", model, sum_of_squares, batch_of(torch.rand(2, 4)))
    assert engine.name == "vmap"


@pytest.mark.parametrize("name", ["ghost", "vmap", "loop"])
def test_a_common_shift_is_as_if_the_parameters_had_moved_and_moves_none(name):
    model = nn.Sequential(nn.Linear(4, 4), Scale(), nn.LayerNorm(4), Positions()).double()
    model = nn.Sequential(model[0], nn.Unflatten(1, (1, 4)), *model[1:3])
    batch = batch_of(numbers(3, 4))
    name = "auto" if name == "ghost" else name
    engine = make_engine(name, model, sum_of_squares, batch)
    theta = engine.parameters.theta
    shift, before = torch.randn(len(theta)).double(), theta.detach().clone()
    ahead = engine(batch, shift).stack()
    assert name != "auto" or (engine.name, engine.alone) == ("ghost", "")
    assert torch.equal(theta, before)
    with torch.no_grad():
        theta.add_(shift)
    assert torch.allclose(ahead, engine(batch).stack())
    assert not torch.allclose(ahead, engine(batch, -shift).stack())


@pytest.mark.parametrize("views", [2, 4])
@pytest.mark.parametrize("name", ["ghost", "vmap", "loop"])
def test_views_that_are_all_alike_change_nothing(name, views):
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.GroupNorm(3, 3), nn.Flatten(), nn.Linear(12, 3))
    model, inputs = model.double(), numbers(3, 2, 4, 4)
    copies = inputs.unsqueeze(1).expand(-1, views, -1, -1, -1)
    single = make_engine(name, model, sum_of_squares, batch_of(inputs))
    several = make_engine(name, model, sum_of_squares, batch_of(copies), views)
    ours, theirs = several(batch_of(copies)), single(batch_of(inputs))
    assert torch.allclose(ours.losses, theirs.losses)
    assert torch.allclose(ours.norms, theirs.norms)
    assert torch.allclose(ours.stack(), theirs.stack())
