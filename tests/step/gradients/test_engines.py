"""Per-example gradients: the three engines agree, with each other and with Opacus.

`loop` is plain autograd on one example at a time in float64; everything else is compared with it.
"""

import warnings
from contextlib import nullcontext

import pytest
import torch
from opacus import GradSampleModule
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.step.gradients import ENGINES, Layer, Parameters
from dpbench.step.gradients.engine import MaterialisedGradients
from tests.step.gradients.nets import Net

EXAMPLES = 5


def curved(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss for outputs of any shape, whose gradient is different everywhere."""
    return ((outputs.flatten(1) + targets.unsqueeze(1)).sin() * (targets.unsqueeze(1) + 1)).sum(1)


def numbers(*shape: int):
    return lambda n: torch.randn(n, *shape, dtype=torch.float64)


def words(length: int):
    return lambda n: torch.randint(0, 7, (n, length))  # repeats are likely, which is the point


def norm(module: nn.Module) -> nn.Module:
    """A normalisation whose scale and shift are not 1 and 0, so that mixing them up would show."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(0.5, 2)
    return module


def biases(module: nn.Module) -> nn.Module:
    """A module of which only the biases are trained."""
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.rpartition(".")[2] == "bias")
    return module


# Layer by layer: what the model is made of, and what it eats.
CASES = {
    "linear": (lambda: nn.Linear(5, 4), numbers(5)),
    "linear without bias": (lambda: nn.Linear(5, 4, bias=False), numbers(5)),
    "linear, 2 positions (Gram)": (lambda: nn.Linear(5, 4), numbers(2, 5)),
    "linear, 6 positions (rows)": (lambda: nn.Linear(5, 4), numbers(6, 5)),
    "linear, 2 axes": (lambda: nn.Linear(5, 4), numbers(2, 3, 5)),
    "linear, 2 axes (Gram), no bias": (lambda: nn.Linear(9, 9, bias=False), numbers(2, 2, 9)),
    "conv": (lambda: nn.Conv2d(2, 3, 3), numbers(2, 6, 5)),
    "conv without bias": (lambda: nn.Conv2d(2, 3, 3, bias=False), numbers(2, 6, 5)),
    "conv (Gram)": (lambda: nn.Conv2d(4, 12, 3), numbers(4, 3, 4)),
    "conv (Gram), all three": (lambda: nn.Conv2d(4, 12, 3, 2, 1, 2), numbers(4, 4, 5)),
    "conv, one position": (lambda: nn.Conv2d(2, 5, 3), numbers(2, 3, 3)),
    "conv, stride": (lambda: nn.Conv2d(2, 3, 3, stride=(2, 1)), numbers(2, 7, 6)),
    "conv, padding": (lambda: nn.Conv2d(2, 3, (3, 2), padding=(2, 1)), numbers(2, 4, 4)),
    "conv, dilation": (lambda: nn.Conv2d(2, 3, 2, dilation=(2, 3)), numbers(2, 6, 7)),
    "conv, all three": (lambda: nn.Conv2d(2, 3, 3, 2, 1, 2), numbers(2, 9, 8)),
    "conv, stride, rest": (lambda: nn.Conv2d(2, 3, (2, 3), (3, 2), (0, 1)), numbers(2, 7, 6)),
    "conv, all, groups": (lambda: nn.Conv2d(4, 6, 3, 2, 1, 2, groups=2), numbers(4, 8, 9)),
    "conv, groups": (lambda: nn.Conv2d(4, 6, 3, groups=2), numbers(4, 5, 5)),
    "conv, padding by name": (lambda: nn.Conv2d(2, 3, 3, padding="same"), numbers(2, 5, 5)),
    "conv, reflected": (
        lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"),
        numbers(2, 5, 5),
    ),
    "group norm": (lambda: norm(nn.GroupNorm(2, 4)), numbers(4, 3, 3)),
    "group norm, no positions": (lambda: norm(nn.GroupNorm(2, 6)), numbers(6)),
    "layer norm": (lambda: norm(nn.LayerNorm(5)), numbers(5)),
    "layer norm, positions": (lambda: norm(nn.LayerNorm(5)), numbers(3, 5)),
    "layer norm, two axes, no bias": (
        lambda: norm(nn.LayerNorm((3, 5), bias=False)),
        numbers(3, 5),
    ),
    "embedding": (lambda: nn.Embedding(7, 3), words(6)),
    "embedding, padding": (lambda: nn.Embedding(7, 3, padding_idx=2), words(6)),
    "embedding, one word": (lambda: nn.Embedding(7, 3), lambda n: torch.randint(0, 7, (n,))),
    "bias of linear": (lambda: biases(nn.Linear(5, 4)), numbers(5)),
    "bias of linear, 2 axes": (lambda: biases(nn.Linear(5, 4)), numbers(2, 3, 5)),
    "bias of conv": (lambda: biases(nn.Conv2d(2, 3, 3)), numbers(2, 6, 5)),
    "bias of conv, groups": (lambda: biases(nn.Conv2d(4, 6, 3, groups=2)), numbers(4, 5, 5)),
    "bias of conv, one axis": (lambda: biases(nn.Conv1d(2, 3, 3)), numbers(2, 6)),
    "bias of group norm": (lambda: biases(norm(nn.GroupNorm(2, 4))), numbers(4, 3, 3)),
    "bias of layer norm": (lambda: biases(norm(nn.LayerNorm((3, 5)))), numbers(2, 3, 5)),
    "bias of instance norm": (
        lambda: biases(norm(nn.InstanceNorm2d(3, affine=True))),
        numbers(3, 4, 2),
    ),
    "biases and head": (
        lambda: nn.Sequential(
            *[biases(nn.Embedding(7, 4)), biases(nn.Linear(4, 6)), nn.GELU()],
            *[biases(nn.Linear(6, 6, bias=False)), biases(norm(nn.LayerNorm(6)))],
            *[nn.Flatten(), nn.Linear(36, 3)],
        ),
        words(6),
    ),
    "convolutional net": (
        lambda: nn.Sequential(
            *[nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), norm(nn.GroupNorm(2, 4))],
            *[nn.Conv2d(4, 3, 3, stride=2), nn.Flatten(), nn.Linear(12, 3)],
        ),
        numbers(2, 5, 5),
    ),
    "text net": (
        lambda: nn.Sequential(
            *[nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 6), nn.GELU()],
            *[norm(nn.LayerNorm(6)), nn.Flatten(), nn.Linear(36, 3)],
        ),
        words(6),
    ),
}

# Opacus 1.6 wants a bias in its layer norm, lets the padding row of an embedding learn, and pads
# reflected convolutions with zeros: engines are compared with each other only.
NOT_IN_OPACUS = {
    "layer norm, two axes, no bias",
    "embedding, padding",
    "text net",
    "conv, reflected",
}
OPACUS = [case for case in CASES if case not in NOT_IN_OPACUS]


def model_and_batch(case: str, examples: int = EXAMPLES) -> tuple[nn.Module, Batch]:
    make, inputs = CASES[case]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, x = make().double(), inputs(examples)
        return model, labelled(x)


def labelled(inputs: torch.Tensor, classes: int = 3) -> Batch:
    targets = torch.arange(len(inputs)) % classes
    return Batch(inputs, targets, torch.zeros_like(targets))


def engines(model: nn.Module, loss=curved) -> dict:
    parameters = Parameters(model)
    return {name: engine(model, loss, parameters) for name, engine in ENGINES.items()}


def close(ours: torch.Tensor, reference: torch.Tensor) -> bool:
    return ours.shape == reference.shape and torch.allclose(ours, reference, rtol=1e-9, atol=1e-10)


def assert_same_answers(engine, reference, batch: Batch) -> None:
    """Every question in the protocol, each to fresh gradients: some answers are remembered."""
    draw = torch.Generator().manual_seed(3)
    size, layers = len(engine.parameters), len(engine.parameters.layers)
    vector, *factors = (
        torch.randn(shape, dtype=torch.float64, generator=draw)
        for shape in ((size,), (len(batch),), (len(batch), layers))
    )
    assert close(engine(batch).losses, reference(batch).losses)
    assert close(engine(batch).norms, reference(batch).norms)
    assert close(engine(batch).layer_norms, reference(batch).layer_norms)
    assert close(engine(batch).stack(), reference(batch).stack())
    assert close(engine(batch).dot(vector), reference(batch).dot(vector))
    for f in factors:
        assert close(engine(batch).weighted_sum(f), reference(batch).weighted_sum(f))
        asked = engine(batch)
        assert close(asked.norms, reference(batch).norms)
        assert close(asked.weighted_sum(f), reference(batch).weighted_sum(f))


@pytest.mark.sampled(60)
@pytest.mark.parametrize("examples", [EXAMPLES, 1, 0])
@pytest.mark.parametrize("case", CASES)
def test_engines_agree_on_every_layer(case, examples):
    model, batch = model_and_batch(case, examples)
    made = engines(model)
    for name in ("ghost", "vmap"):
        assert_same_answers(made[name], made["loop"], batch)


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("bias of")])
def test_a_bias_alone_has_a_rule_which_keeps_no_inputs(case):
    model, batch = model_and_batch(case)
    model = nn.Sequential(model)
    engine = engines(model)["ghost"]
    assert engine.fallbacks == []
    _, calls = engine._forward(batch, {}, nullcontext())
    assert [call.a.numel() for call in calls.values()] == [0]


@pytest.mark.parametrize("name", ["cnn_tanh", "logistic", "logistic_squashed", "mlp"])
def test_engines_agree_on_the_small_models_of_the_suite(name):
    run = build(compose([f"model={name}"]))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = run.model.build(run.dataset.shape, run.dataset.classes).double()
        batch = labelled(torch.rand(EXAMPLES, *run.dataset.shape, dtype=torch.float64))
    made = engines(model, cross_entropy)
    for engine in ("ghost", "vmap"):
        assert_same_answers(made[engine], made["loop"], batch)


@pytest.mark.parametrize("case", CASES)
def test_the_reference_adds_up_to_plain_autograd(case):
    model, batch = model_and_batch(case)
    engine = engines(model)["loop"]
    curved(model(batch.inputs), batch.targets).sum().backward()
    total = engine.parameters.flatten({n: p.grad for n, p in engine.parameters.named.items()})
    assert close(engine(batch).weighted_sum(torch.ones(EXAMPLES, dtype=torch.float64)), total)


@pytest.mark.parametrize("case", OPACUS)
def test_norms_and_clipped_sums_are_those_of_opacus(case):
    model, batch = model_and_batch(case)
    ours = engines(model)["ghost"](batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus' hooks, and torch about them
        theirs = GradSampleModule(model, loss_reduction="sum")
        curved(theirs(batch.inputs), batch.targets).sum().backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    stack = torch.cat([p.grad_sample.flatten(1) for p in trained], 1)
    factors = (0.5 / stack.norm(dim=1)).clamp(max=1)
    assert close(ours.norms, stack.norm(dim=1))
    assert close(ours.weighted_sum((0.5 / ours.norms).clamp(max=1)), factors @ stack)


@pytest.mark.parametrize("name", ENGINES)
def test_squared_layer_norms_add_up_to_squared_norms(name):
    model, batch = model_and_batch("convolutional net")
    gradients = engines(model)[name](batch)
    assert close(gradients.layer_norms.square().sum(1), gradients.norms.square())


@pytest.mark.parametrize("name", ENGINES)
def test_engines_follow_theta(name):
    model, batch = model_and_batch("linear")
    engine = engines(model)[name]
    with torch.no_grad():
        engine.parameters.theta.mul_(3)
    losses = curved(model(batch.inputs), batch.targets).detach()
    assert close(engine(batch).losses, losses)


@pytest.mark.parametrize("name", ["ghost", "vmap"])
def test_float32_agrees_with_the_reference_to_rounding(name):
    model, batch = model_and_batch("convolutional net")
    made, batch = engines(model.float()), labelled(batch.inputs.float())
    ours, reference = made[name](batch), made["loop"](batch)
    assert torch.allclose(ours.norms.double(), reference.norms, rtol=1e-4)
    assert torch.allclose(ours.stack().double(), reference.stack(), rtol=1e-3, atol=1e-4)


# Examples whose gradient is not finite.


def first_without(batch: Batch) -> Batch:
    return batch.each(lambda t: t[1:])


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(
    "case", ["linear, 2 positions (Gram)", "linear, 6 positions (rows)", "convolutional net"]
)
def test_a_non_finite_input_spoils_its_own_gradient_only(case, name, bad):
    model, batch = model_and_batch(case)
    batch.inputs[0] = bad
    assert_first_is_left_out(engines(model)[name], batch)


def bursting(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss that is infinite for class 0, and so is its gradient."""
    return curved(outputs, targets) / (targets > 0)


@pytest.mark.sampled(58)
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_a_non_finite_loss_spoils_its_own_gradient_only(case, name):
    model, batch = model_and_batch(case, 3)  # classes 0, 1, 2: the first one bursts
    assert_first_is_left_out(engines(model, bursting)[name], batch)


def assert_first_is_left_out(engine, batch: Batch) -> None:
    ours, clean = engine(batch), engine(first_without(batch))
    assert not ours.norms[0].isfinite()
    assert not ours.layer_norms[0].isfinite().all()
    assert close(ours.norms[1:], clean.norms)
    factors = torch.linspace(0, 1, len(batch), dtype=torch.float64)
    assert close(ours.weighted_sum(factors), clean.weighted_sum(factors[1:]))
    per_layer = factors.unsqueeze(1).expand(-1, len(engine.parameters.layers))
    assert close(ours.weighted_sum(per_layer), clean.weighted_sum(per_layer[1:]))


@pytest.mark.parametrize("name", ["ghost", "vmap"])
def test_a_norm_beyond_the_floats_is_not_finite_rather_than_wrong(name):
    model, batch = model_and_batch("linear")
    batch = labelled(batch.inputs.float())
    batch.inputs[0] *= 1e30  # its square is beyond float32, its gradient is not
    engine = engines(model.float())[name]
    ours, clean = engine(batch), engine(first_without(batch))
    right = ours.stack()[0].double().norm().float()
    assert not ours.norms[0].isfinite() or torch.allclose(ours.norms[0], right)
    factors = torch.tensor([0.0, 1, 1, 1, 1])
    assert torch.allclose(ours.weighted_sum(factors), clean.weighted_sum(factors[1:]))


def test_clipping_holds_where_the_gram_matrix_cancels():
    # Two positions with opposite gradients: what is left is below the rounding of the products.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(64, 64, bias=False)
        x = 1e3 * torch.rand(200, 1, 64).expand(-1, 2, -1) + 0.1 * torch.rand(200, 2, 64)

    def opposite(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 1e4 * (outputs[:, 0] - outputs[:, 1]).sum(1)

    gradients = engines(model, opposite)["ghost"](labelled(x))
    factors = (1 / gradients.norms).clamp(max=1)
    for i in range(len(x)):
        only = torch.where(torch.arange(len(x)) == i, factors, 0)
        assert gradients.weighted_sum(only).norm() <= 1.01


def test_clipping_holds_where_the_bias_gradients_of_positions_cancel():
    # Inputs of zero leave the bias alone: huge gradients of two positions, nearly opposite.
    model = nn.Linear(64, 64)
    weights = torch.rand(64, generator=torch.Generator().manual_seed(0))

    def opposite(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        scale = 1e8 + 1e3 * targets.unsqueeze(1)
        return ((outputs[:, 0] * scale - outputs[:, 1] * (scale - 16)) * weights).sum(1)

    gradients = engines(model, opposite)["ghost"](labelled(torch.zeros(50, 2, 64)))
    factors = (1 / gradients.norms).clamp(max=1)
    for i in range(50):
        only = torch.where(torch.arange(50) == i, factors, 0)
        assert gradients.weighted_sum(only).norm() <= 1.001


class InPlace(Net):
    def forward(self, x):
        return self.two(self.one(x).tanh_())


def test_outputs_may_be_changed_in_place():
    made = engines(InPlace().double())
    batch = labelled(numbers(4)(EXAMPLES))
    assert_same_answers(made["ghost"], made["loop"], batch)


def test_the_norm_of_a_long_gradient_is_not_too_small():
    rows = torch.rand(2, 5_000_000, generator=torch.Generator().manual_seed(0))
    stacked = MaterialisedGradients(torch.zeros(2), rows, (Layer("", slice(0, 5_000_000)),))
    right = rows.double().square().sum(1).sqrt()
    for norms in (stacked.norms, stacked.layer_norms[:, 0]):
        assert (norms >= right * (1 - 1e-7)).all()  # rounded once, to float32
        assert torch.allclose(norms.double(), right, rtol=1e-5)
