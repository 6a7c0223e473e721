"""What one example adds to a float32 sum is never longer than the stated sensitivity.

Each rule of the book-keeping engine, and a stack of rows, is given inputs and adjoints that should
break it: squares that underflow, denormals, terms that cancel, values that all round one way, and
huge ones. What an example adds is measured in float64, with all other factors 0.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.batch_norm import freeze_batch_norm
from dpbench.learning.models.standardised import StandardisedConv2d
from dpbench.step.clipping import Coordinates, CountQuery, Global, Layerwise, make_clip
from dpbench.step.clipping.clip import MAX_BOUND, MIN_BOUND
from dpbench.step.gradients import Parameters, make_engine
from dpbench.step.gradients.engine import MaterialisedGradients
from dpbench.step.gradients.factored import FactoredGradients
from dpbench.step.gradients.layers import ModuleCall
from dpbench.step.gradients.layers.rules import RULES as LAYER_RULES
from dpbench.step.gradients.modules import ModuleGradients, TrackedModule
from dpbench.step.gradients.products import FLOAT32_PRODUCTS, Products
from dpbench.step.mechanism.step import finite_factors
from dpbench.step.methods.dpsgd_f import Groupwise
from dpbench.step.methods.dpsgd_global import GlobalAdapt
from dpbench.step.methods.dpzero import DirectionalGradients
from tests.problems import problem

ROUNDING = 1e-6
"""By how much of the sensitivity one example may exceed it: a few roundings of float32."""

COUNTS = CountQuery(10.0, before=False)


class Sine(nn.Module):
    """A module without a rule."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, inputs):
        return inputs * self.scale


def bias_of(module: nn.Module) -> nn.Module:
    """The module with all but its bias frozen."""
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name == "bias")
    return module


# By rule: the module, the shape of its inputs for one example, and the number of views.
RULES = {
    "dyad": (lambda: nn.Linear(7, 10), (7,), 1),
    "dyad without bias": (lambda: nn.Linear(7, 10, bias=False), (7,), 1),
    "dyad, wide": (lambda: nn.Linear(2500, 3, bias=False), (2500,), 1),
    "outer, Gram": (lambda: nn.Linear(40, 40), (4, 40), 1),
    "outer, Gram, long": (lambda: nn.Linear(900, 6, bias=False), (2, 900), 1),
    "outer, Gram, views": (lambda: nn.Linear(40, 40, bias=False), (2, 40), 2),
    "outer, rows": (lambda: nn.Linear(5, 6), (9, 5), 1),
    "outer, many rows": (lambda: nn.Linear(5, 6, bias=False), (700, 5), 1),
    "convolution": (lambda: nn.Conv2d(2, 3, 3), (2, 6, 5), 1),
    "convolution, Gram": (lambda: nn.Conv2d(16, 48, 3), (16, 4, 4), 1),
    "convolution, large": (lambda: nn.Conv2d(4, 12, 3, groups=2), (4, 4, 4), 1),
    "convolution, 1d": (lambda: nn.Conv1d(2, 3, 3, bias=False), (2, 11), 2),
    "standardised": (lambda: StandardisedConv2d(3, 5, 3, 1, 1, True), (3, 5, 5), 1),
    "standardised, wide": (lambda: StandardisedConv2d(128, 2, 3, 1, 0, False), (128, 3, 3), 1),
    "embedding": (lambda: nn.Embedding(3, 6), (5,), 1),
    "embedding, wide": (lambda: nn.Embedding(3, 900), (4,), 1),
    "embedding, one row": (lambda: nn.Embedding(1, 900), (2,), 1),
    "group norm": (lambda: nn.GroupNorm(2, 4), (4, 3, 3), 1),
    "frozen batch norm": (lambda: freeze_batch_norm(nn.BatchNorm2d(4)), (4, 3, 3), 1),
    "layer norm": (lambda: nn.LayerNorm(6), (5, 6), 1),
    "bias": (lambda: bias_of(nn.Linear(3, 5)), (90, 3), 2),
    "bias of channels": (lambda: bias_of(nn.Conv2d(2, 5, 1)), (2, 9, 8), 1),
    "fallback": (Sine, (6,), 1),
}


def stacked(rows: torch.Tensor) -> MaterialisedGradients:
    """Rows as an engine that materialises has them, in two layers."""
    both = nn.Sequential(nn.Linear(rows.shape[1] - 1, 1, bias=False), nn.Linear(1, 1, bias=False))
    return MaterialisedGradients(rows[:, 0], rows, Parameters(both).layers)


def along_one_direction(slopes: torch.Tensor, draw: torch.Generator) -> DirectionalGradients:
    """Gradients of these slopes along a unit vector."""
    vector = torch.randn(300, generator=draw)
    layers = stacked(torch.zeros(EXAMPLES, 300))._layers
    return DirectionalGradients(torch.zeros(EXAMPLES), slopes, vector / vector.norm(), layers)


# Numbers to break a norm with.


def exponents(draw, shape, low, high):
    """Numbers of either sign with decimal exponents from low to high; some are denormal."""
    sizes = low + (high - low) * torch.rand(shape, generator=draw, dtype=torch.float64)
    signs = torch.randint(2, shape, generator=draw) * 2 - 1
    return (10**sizes * signs).float()


def alike(draw, shape, low, high):
    """One number throughout each example, so that all roundings go one way."""
    return exponents(draw, (shape[0], *[1] * (len(shape) - 1)), low, high).expand(shape).clone()


def opposite(draw, shape, low, high):
    """Neighbours along the last axis but one (or the last) that cancel but for a few digits."""
    values = alike(draw, shape, low, high) * (1 + torch.rand(shape, generator=draw))
    axis = max(1, len(shape) - 2) if len(shape) < 4 else len(shape) - 1
    other = values.roll(1, axis)
    digits = 10 ** (-8 * torch.rand((shape[0], *[1] * (len(shape) - 1)), generator=draw))
    parity = torch.arange(shape[axis]).view(-1, *[1] * (len(shape) - 1 - axis)) % 2 == 1
    return torch.where(parity, -other * (1 + digits), values)


def sparse(draw, shape, low, high):
    return exponents(draw, shape, low, high) * (torch.rand(shape, generator=draw) < 0.2)


KINDS = [exponents, alike, opposite, sparse]
RANGES = [
    *((-1, 1), (-8, 0), (-16, -11), (-23, -20), (-26, -18)),
    *((-45, -30), (-45, 38), (-20, 20), (15, 21), (30, 38.5)),
]
EXAMPLES = len(KINDS) * len(RANGES)


def broken(draw, shape) -> torch.Tensor:
    """Rows [EXAMPLES K, ...]: each example of another kind and range, in any order."""
    views = shape[0] // EXAMPLES
    parts = [kind(draw, (views, *shape[1:]), *ends) for kind in KINDS for ends in RANGES]
    return torch.cat([parts[i] for i in torch.randperm(EXAMPLES, generator=draw)])


def gradients_of(rule: str, draw: torch.Generator, products: Products = FLOAT32_PRODUCTS):
    """Gradients as the engine has them after a pass with such inputs and adjoints."""
    if rule == "stack":
        return stacked(broken(draw, (EXAMPLES, 300)))
    if rule == "directional":
        return along_one_direction(broken(draw, (EXAMPLES, 1)).squeeze(1), draw)
    make, shape, views = RULES[rule]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make()
    rows = (EXAMPLES * views, *shape)
    if isinstance(module, nn.Embedding):
        a = torch.randint(module.num_embeddings, rows, generator=draw)
    else:
        a = broken(draw, rows)
    with torch.no_grad():
        b = broken(draw, tuple(module(a).shape))
        return passed(module, a, b, views, products)


def passed(
    module: nn.Module, a: torch.Tensor, b: torch.Tensor, views: int, products: Products
) -> FactoredGradients:
    """The gradients of a module after a pass with these inputs and adjoints."""
    a, b = products.operand(a), products.operand(b)
    parameters, tracked = Parameters(module), TrackedModule("", module)
    values = {name: p.detach() for name, p in module.named_parameters()}
    call = ModuleCall(module, a, b, views, lambda: values, products=products)
    gradients = ModuleGradients(tracked.rule.gradients(call), call)
    return FactoredGradients(torch.zeros(len(b) // views), {tracked: gradients}, parameters)


CLIP_OF = {
    "abadi": lambda bound, strict: make_clip("abadi", "flat", bound),
    "automatic": lambda bound, strict: make_clip("automatic", "flat", bound),
    "normalise": lambda bound, strict: make_clip("normalise", "flat", bound),
    "normalise layerwise": lambda bound, strict: make_clip("normalise", "layerwise", bound),
    "psac": lambda bound, strict: make_clip("psac", "flat", bound),
    "tanh": lambda bound, strict: make_clip("tanh", "flat", bound),
    "tanh layerwise": lambda bound, strict: make_clip("tanh", "layerwise", bound),
    "global": Global,
    "global layerwise": lambda bound, strict: Layerwise(Global(bound, strict)),
    "global adapt": lambda bound, strict: GlobalAdapt(bound, strict, 0.7, 0.1, COUNTS),
    "groupwise": lambda bound, strict: Groupwise(bound, COUNTS, published=False),
    "coordinates": lambda bound, strict: Coordinates(bound),
}
"""Clips, from a bound R and another Z; Quantile has the factors of the clip that it adapts."""

BOUNDS = [1.0, MIN_BOUND, MAX_BOUND, 0.1, 3e-5]


def excess(gradients, clip) -> float:
    """By how much of the sensitivity the farthest of all examples moves the sum beyond it."""
    zeros = gradients.losses.new_zeros(EXAMPLES)
    clip = clip.bind(problem(size=len(gradients.weighted_sum(zeros))))
    factors, _ = finite_factors(clip, clip.norms(gradients), zeros.long())
    farthest = 0.0
    for one in torch.eye(EXAMPLES):
        alone = factors * (one if factors.dim() == 1 else one.unsqueeze(1))
        moved = clip.reduce(gradients, alone).double().norm().item()
        assert math.isfinite(moved)
        farthest = max(farthest, moved)
    return farthest / float(clip.sensitivity.bound) - 1


def assert_no_example_exceeds(rule: str, seed: int, products: Products = FLOAT32_PRODUCTS) -> None:
    """For all clips and bounds R, each with some other bound Z."""
    draw, shift = torch.Generator().manual_seed(seed), seed % len(BOUNDS)
    gradients = gradients_of(rule, draw, products)
    with torch.no_grad():
        for name, make in CLIP_OF.items():
            for bound, strict in zip(BOUNDS, BOUNDS[shift:] + BOUNDS[:shift], strict=True):
                assert excess(gradients, make(bound, strict)) <= ROUNDING, (name, bound, strict)


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("rule", [*RULES, "stack", "directional"])
@given(st.integers(0, 10**6))
@settings(derandomize=True, deadline=None, max_examples=2)
def test_one_example_adds_no_more_than_the_sensitivity(rule, seed):
    assert_no_example_exceeds(rule, seed)


@pytest.mark.long
@pytest.mark.parametrize("rule", [*RULES, "stack", "directional"])
@given(st.integers(0, 10**6))
@settings(derandomize=True, deadline=None, max_examples=15)
def test_a_long_search_finds_no_example_that_adds_more(rule, seed):
    assert_no_example_exceeds(rule, seed)


def test_every_rule_is_searched():
    searched = {type(make()) for make, _, _ in RULES.values()}
    same = {nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.RMSNorm}  # as LayerNorm
    same |= {nn.BatchNorm1d, nn.BatchNorm3d}  # as BatchNorm2d
    assert set(LAYER_RULES) <= searched | same


# Whole models.


def moved_by(engine, batch: Batch, clip, i: int) -> float:
    """How far example i alone moves the sum, as a multiple of the sensitivity."""
    gradients = engine(batch)
    factors, _ = finite_factors(clip, clip.norms(gradients), batch.groups)
    here = torch.arange(len(batch)) == i
    alone = factors * (here if factors.dim() == 1 else here.unsqueeze(1))
    return gradients.weighted_sum(alone).double().norm().item() / float(clip.sensitivity.bound)


@pytest.mark.parametrize("classes", [10, 1000])
@pytest.mark.parametrize("name", ["ghost", "vmap"])
def test_confident_predictions_add_no_more(name, classes):
    # Nearly all probabilities are 2.6e-23, of which the square is nothing to float32, and one is
    # 3e-23, of which it is a denormal number.
    model = nn.Linear(1, classes)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.fill_(math.log(2.6e-23))
        model.bias[:2] = torch.tensor([0, math.log(3e-23)])
    zeros = torch.zeros(3, dtype=torch.int64)
    batch = Batch(torch.tensor([[1.0], [1e-3], [0.0]]), zeros, zeros)
    engine = make_engine(name, model, cross_entropy, batch)
    for clip in (make_clip("normalise", "flat", 1.0), Global(1.0, MIN_BOUND)):
        assert max(moved_by(engine, batch, clip, i) for i in range(3)) <= 1 + ROUNDING


def test_no_layer_s_part_of_a_constant_image_before_instance_normalisation_is_longer():
    # In real numbers the kernel's gradient is 0 there: what is left is rounding.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(32, 64, 3, bias=False), nn.InstanceNorm2d(64, affine=True)),
            *(nn.Tanh(), nn.Flatten(), nn.Linear(64 * 36, 3)),
        )
    batch = Batch(torch.rand(6, 32, 8, 8), torch.arange(6) % 3, torch.zeros(6, dtype=torch.int64))
    engine = make_engine("ghost", model, cross_entropy, batch)
    batch.inputs.copy_(torch.linspace(0.1, 0.9, 6).view(-1, 1, 1, 1).expand(6, 32, 8, 8))
    clip, gradients = make_clip("normalise", "layerwise", 3**0.5), engine(batch)
    factors = clip.factors(clip.norms(gradients), batch.groups)
    for one in torch.eye(6):
        total = gradients.weighted_sum(factors * one.unsqueeze(1)).double()
        for layer in engine.parameters.layers:
            assert total[layer.at].norm() <= 1 + ROUNDING, layer.name
