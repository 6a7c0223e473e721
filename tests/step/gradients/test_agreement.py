"""The check of an engine on its probe, and what the book-keeping engine does not let go of."""

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.standardised import StandardisedConv2d
from dpbench.step.gradients import ENGINES, EngineFallback, PerExampleShift, make_engine
from dpbench.step.gradients.agreement import FLOAT32, FLOAT64
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.layers import FALLBACK
from dpbench.step.gradients.layers.rules import RULES
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.modules import Unsupported
from dpbench.step.gradients.parameters import Parameters
from dpbench.system.errors import UserError
from tests.step.gradients.moved_rows import seeded


def labelled(inputs: torch.Tensor) -> Batch:
    targets = torch.arange(len(inputs)) % 3
    return Batch(inputs, targets, torch.zeros_like(targets))


# Activations that write over the outputs of what comes before them.


class Viewed(nn.Module):
    """A module without a rule, whose output is a view."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 6))

    def forward(self, x):
        return (x * self.scale).view(len(x), 2, -1)


ReLU = nn.ReLU
IN_PLACE = {
    "convolution": ((1, 8, 8), lambda: [nn.Conv2d(1, 4, 3), ReLU(True), nn.Conv2d(4, 3, 3)]),
    "wide convolution": ((20, 5, 5), lambda: [nn.Conv2d(20, 6, 3), ReLU(True)]),
    "grouped convolution": ((2, 6, 6), lambda: [nn.Conv2d(2, 4, 3, groups=2), ReLU(True)]),
    "sequence": ((3, 9), lambda: [nn.Conv1d(3, 4, 3), ReLU(True), nn.Conv1d(4, 3, 3)]),
    "standardised": ((2, 6, 6), lambda: [StandardisedConv2d(2, 4, 3, 1, 1, True), ReLU(True)]),
    "linear": ((4,), lambda: [nn.Linear(4, 6), ReLU(True), nn.Linear(6, 3), ReLU(True)]),
    "positions": ((3, 4), lambda: [nn.Linear(4, 6), ReLU(True), nn.Linear(6, 3)]),
    "normalised": ((4, 5, 5), lambda: [nn.GroupNorm(2, 4), ReLU(True), nn.Conv2d(4, 3, 3)]),
    "layer norm": ((3, 4), lambda: [nn.LayerNorm(4), ReLU(True), nn.Linear(4, 3)]),
    "view": ((6,), lambda: [Viewed(), ReLU(True)]),
}


def in_place(case: str, examples: int) -> tuple[nn.Module, Batch]:
    """A model, all of it, and a batch."""
    shape, make = IN_PLACE[case]
    model = seeded(lambda: nn.Sequential(*make(), nn.Flatten(), nn.LazyLinear(3)))
    draw = torch.Generator().manual_seed(1)
    batch = labelled(torch.randn(examples, *shape, generator=draw))
    model(batch.inputs)
    return model, batch


@pytest.mark.filterwarnings("ignore:engine=ghost. there is no rule")
@pytest.mark.parametrize("case", IN_PLACE)
def test_an_activation_in_place_loses_no_layer_here_nor_at_an_example_s_own_place(case):
    model, batch = in_place(case, 5)
    ghost, loop = (make_engine(name, model, cross_entropy, batch) for name in ("ghost", "loop"))
    assert ghost.name == "ghost"
    here, reference = ghost(batch), loop(batch)
    scales = 0.1 / reference.norms
    ahead = ghost(batch, PerExampleShift(here, scales.float())).stack()
    right = loop(batch, PerExampleShift(reference, scales)).stack()
    common = torch.full_like(ghost.parameters.theta, 0.01)
    for ours, theirs in (
        (here.stack(), reference.stack()),
        (ahead, right),
        (ghost(batch, common).stack(), loop(batch, common.double()).stack()),
    ):
        assert torch.allclose(ours.double(), theirs, rtol=1e-3, atol=1e-5)
        assert (ours != 0).any(0).sum() > 0.5 * len(common)


@pytest.mark.parametrize("own", [False, True])
def test_a_gradient_that_is_lost_is_an_error_and_no_zeros(monkeypatch, own):
    # As if the outputs were not looked at: an activation in place then takes them out of the graph.
    model, batch = in_place("convolution" if own else "view", 4)
    ghost = Ghost(model, cross_entropy, Parameters(model))
    shift = PerExampleShift(ghost(batch), torch.full((4,), 0.1)) if own else None
    monkeypatch.setattr(torch.Tensor, "_is_view", lambda self: False)
    if own:  # or torch itself complains about the first layer's output, which is a leaf
        monkeypatch.setattr(batch.inputs, "requires_grad", True)
    with pytest.raises(Unsupported, match="and its gradient is lost; use engine=vmap"):
        ghost(batch, shift)


class Branching(nn.Module):
    """The outputs of one module go nowhere; with `used` they do."""

    used = False

    def __init__(self):
        super().__init__()
        self.one, self.spare, self.two = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        x = torch.tanh(self.one(x))
        spare = self.spare(x)
        return self.two(x + spare if self.used else x)


@pytest.mark.parametrize("name", ENGINES)
def test_a_module_whose_outputs_go_nowhere_has_a_gradient_of_zero(name):
    model = seeded(Branching)
    batch = labelled(torch.rand(3, 4))
    engine = make_engine(name, model, cross_entropy, batch)
    assert engine.name == name
    here = engine(batch)
    for gradients in (
        here,
        engine(batch, PerExampleShift(here, 0.1 / here.norms)),
        engine(batch, torch.full_like(engine.parameters.theta, 0.1)),
    ):
        rows = engine.parameters.unflatten(gradients.stack().float())
        assert not rows["spare.weight"].any()
        assert rows["one.weight"].any()


def test_a_module_that_is_used_at_theta_must_be_so_at_an_example_s_own_place():
    model = seeded(Branching)
    model.used = True
    batch = labelled(torch.rand(3, 4))
    ghost = make_engine("ghost", model, cross_entropy, batch)
    here = ghost(batch)
    model.used = False
    with pytest.raises(UserError, match="depend on spare, and its gradient is lost"):
        ghost(batch, PerExampleShift(here, 0.1 / here.norms))


class CutOff(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        with torch.no_grad():
            x = self.one(x)
        return self.two(x)


def test_a_module_that_is_cut_off_from_its_parameters_is_left_to_vmap():
    model, batch = seeded(CutOff), labelled(torch.rand(3, 4))
    with pytest.warns(EngineFallback, match="cut off from its parameters"):
        engine = make_engine("ghost", model, cross_entropy, batch)
    assert engine.name == "vmap"
    right = Loop(model, cross_entropy, engine.parameters)(batch).stack()
    assert torch.allclose(engine(batch).stack().double(), right, atol=1e-6)


# What the probe must show.


def test_a_wrong_rule_behind_a_layer_of_zeros_is_noticed(monkeypatch):
    # At the start all gradients but the last layer's are zero, whatever the rule says.
    model = seeded(
        lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9, 3))
    )
    nn.init.zeros_(model[3].weight)
    right = RULES[nn.Conv1d]
    wrong = right._replace(gradients=lambda call: right.gradients(call._replace(a=1.1 * call.a)))
    monkeypatch.setitem(RULES, nn.Conv1d, wrong)
    with pytest.warns(EngineFallback, match="disagrees with the reference"):
        engine = make_engine("ghost", model, cross_entropy, labelled(torch.rand(2, 2, 4)))
    assert engine.name == "vmap"


@pytest.mark.parametrize(
    "kind", ["linear", "convolution", "standardised", "layer norm", "embedding", "fallback"]
)
def test_a_wrong_rule_for_shifts_of_each_example_s_own_is_noticed(monkeypatch, kind):
    layer = {
        "linear": nn.Linear(4, 6),
        "convolution": nn.Conv1d(3, 6, 1),
        "standardised": StandardisedConv2d(3, 6, 1, 1, 0, True),
        "layer norm": nn.LayerNorm(4),
        "embedding": nn.Embedding(9, 6),
        "fallback": Viewed(),
    }[kind]
    shapes = {"convolution": (3, 4), "standardised": (3, 2, 2), "fallback": (6,)}
    draw = torch.Generator().manual_seed(0)
    inputs = (
        torch.randint(9, (2, 4), generator=draw)
        if kind == "embedding"
        else torch.rand(2, *shapes.get(kind, (4,)))
    )
    model = seeded(lambda: nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.LazyLinear(3)))
    model(inputs)
    right = RULES.get(type(layer), FALLBACK)

    def unmoved(perturbation, x):
        scales = 0 * perturbation.scales
        return right.perturbed_outputs(perturbation._replace(scales=scales), x)

    if kind == "fallback":
        monkeypatch.setattr(
            "dpbench.gradients.modules.FALLBACK", right._replace(perturbed_outputs=unmoved)
        )
    else:
        monkeypatch.setitem(RULES, type(layer), right._replace(perturbed_outputs=unmoved))
    with pytest.warns(EngineFallback, match="disagrees with the reference"):
        assert make_engine("ghost", model, cross_entropy, labelled(inputs)).name == "vmap"


def test_non_finite_values_do_not_agree(monkeypatch):
    right = RULES[nn.Linear]
    nothing = right._replace(
        gradients=lambda call: right.gradients(call._replace(a=call.a * torch.nan))
    )
    monkeypatch.setitem(RULES, nn.Linear, nothing)
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 3)))
    with pytest.warns(EngineFallback, match="disagrees with the reference by inf"):
        make_engine("ghost", model, cross_entropy, labelled(torch.rand(2, 4)))


def test_the_check_is_as_close_as_rounding_allows():
    assert FLOAT64 <= 1e-8
    assert FLOAT32 <= 1e-3


@pytest.mark.parametrize("wrong_by", [1e-5, 1e-7])
def test_a_rule_that_is_hardly_wrong_is_noticed(monkeypatch, wrong_by):
    right = RULES[nn.Linear]
    wrong = right._replace(
        gradients=lambda call: right.gradients(call._replace(a=call.a * (1 + wrong_by)))
    )
    monkeypatch.setitem(RULES, nn.Linear, wrong)
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 3)))
    with pytest.warns(EngineFallback, match="disagrees with the reference"):
        make_engine("ghost", model, cross_entropy, labelled(torch.rand(2, 4)))


# Parameters and layers that not every engine knows.


class Scaled(nn.Module):
    """A parameter without dimensions beside a layer."""

    def __init__(self):
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.tensor(1.5)), nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) * self.scale


class Alone(nn.Module):
    """A parameter without dimensions in a module of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return torch.sin(x * self.scale)


@pytest.mark.filterwarnings("ignore:engine=ghost. there is no rule")
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("make", [Scaled, lambda: nn.Sequential(nn.Linear(4, 3), Alone())])
def test_a_parameter_without_dimensions_is_one_like_any_other(make, name):
    model, batch = seeded(make).double(), labelled(torch.rand(4, 4, dtype=torch.float64))
    engine = make_engine(name, model, cross_entropy, batch)
    assert engine.name == name
    here, reference = engine(batch), Loop(model, cross_entropy, engine.parameters)
    assert torch.allclose(here.stack(), reference(batch).stack())
    scales = 0.1 / here.norms
    ahead = reference(batch, PerExampleShift(reference(batch), scales)).stack()
    assert torch.allclose(engine(batch, PerExampleShift(here, scales)).stack(), ahead)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.inner, self.head = kind(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.inner(x)[0][:, -1])


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN, nn.LSTM])
def test_recurrent_layers_are_vectorised_and_agree_with_the_reference(kind):
    model, batch = seeded(lambda: Recurrent(kind)), labelled(torch.rand(5, 6, 4))
    vmap, loop = (make_engine(name, model, cross_entropy, batch) for name in ("auto", "loop"))
    assert vmap.name == "vmap"
    assert torch.allclose(vmap(batch).stack().double(), loop(batch).stack(), rtol=1e-4, atol=1e-6)


class Packed(Recurrent):
    """Packs what is no padding by itself, of which no padded form is known."""

    def forward(self, x):
        steps = x[:, :4].transpose(0, 1).flatten(0, 1)
        sizes = torch.full((4,), len(x))
        return self.head(self.inner(nn.utils.rnn.PackedSequence(steps, sizes))[1][-1])


def test_sequences_packed_by_hand_are_a_sentence_and_have_a_way_out():
    model, batch = seeded(lambda: Packed(nn.GRU)), labelled(torch.rand(2, 6, 4))
    for name in ("auto", "vmap"):
        with pytest.raises(UserError, match=r"engine=vmap cannot .* vectorise it .*engine=loop"):
            make_engine(name, model, cross_entropy, batch)
    assert make_engine("loop", model, cross_entropy, batch)(batch).stack().any(0).all()


@pytest.mark.parametrize("name", [*ENGINES, "auto"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.bfloat16])
def test_parameters_that_cannot_be_clipped_as_they_are_are_refused_by_name(name, dtype):
    model = nn.Sequential(nn.Linear(4, 3))
    model.register_parameter("odd", nn.Parameter(torch.ones(2, dtype=dtype)))
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(UserError, match=f"odd is {kind}, and gradients are.*view_as_real"):
        make_engine(name, model, cross_entropy, labelled(torch.rand(2, 4)))


@pytest.mark.parametrize("name", [*ENGINES, "auto"])
def test_parameters_of_two_types_or_without_a_shape_are_refused_by_name(name):
    batch = labelled(torch.rand(2, 4))
    mixed = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3).double())
    with pytest.raises(
        UserError, match=r"^0\.weight is float32 and 1\.weight is float64: .*float\(\)"
    ):
        make_engine(name, mixed, cross_entropy, batch)
    with pytest.raises(UserError, match=r"^0\.weight has no shape yet, as lazy modules"):
        make_engine(name, nn.Sequential(nn.LazyLinear(3)), cross_entropy, batch)


class EverySecond(nn.Module):
    """Turns every second example round in training, after random numbers of its own for each."""

    def __init__(self, draw):
        super().__init__()
        self.draw, self.layer = draw, nn.Linear(4, 3)

    def forward(self, x):
        if self.training:
            x = (
                x
                * self.draw(torch.empty_like(x[:, :1]))
                * (1 - torch.arange(len(x)) % 2 * 2)[:, None]
            )
        return self.layer(x)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x.exponential_(),
        lambda x: x.log_normal_(),
        lambda x: x.geometric_(0.3),
        lambda x: 1 + x.random_(5),
        lambda x: x.cauchy_(5),
        lambda x: torch.randint_like(x, 1, 5),
        lambda x: x.bernoulli_(0.5) + 1,
    ],
)
def test_an_example_s_place_decides_nothing_in_training_either(draw):
    model, batch = EverySecond(draw), labelled(torch.randn(4, 4))
    assert make_engine("auto", model, cross_entropy, batch).name == "vmap"


@pytest.mark.parametrize("views", [1, 2, 3])
def test_draws_in_training_are_given_again_for_all_views_of_an_example(views):
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Linear(6, 3))
    probe = labelled(torch.rand(2, *([views] if views > 1 else []), 4))
    assert make_engine("ghost", model, cross_entropy, probe, views).name == "ghost"


@pytest.mark.parametrize("each", [1, 2, 3])
def test_draws_in_training_are_given_again_for_all_examples_of_a_user(each):
    """The engine takes a pass of two examples first, whose draws are no user's."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Linear(6, 3))
    targets = torch.arange(3 * each).view(3, each) % 3
    users = torch.zeros(3, dtype=torch.int64)
    probe = Batch(torch.rand(3, each, 4), targets, users, torch.ones(3, each, dtype=torch.bool))
    for seed in range(5):
        torch.manual_seed(seed)
        assert make_engine("ghost", model, cross_entropy, probe).name == "ghost"
