"""What must hold on a GPU, and is tested on the CPU as well so that these tests are known to run.

`pytest -m gpu` runs them where there is a GPU; without one, that half is skipped.
"""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import nn

from dpbench.learning.data.derive.scattering import Scattering
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.resnet9 import ResNet9
from dpbench.runs.training import trainer
from dpbench.runs.training.budget import Privacy
from dpbench.runs.training.checkpoints import Checkpoints
from dpbench.runs.training.run import Run
from dpbench.step.gradients import ForwardOptions, make_engine
from dpbench.step.gradients.precision import PRECISIONS, Precision, full_precision_products
from dpbench.step.gradients.products import SUMS, Products
from dpbench.step.mechanism.graph_step import GraphStep
from dpbench.step.mechanism.noise import GRID, Gaussian
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.mechanism.streams import seeded
from dpbench.step.methods.dpsgd import dpsgd

pytestmark = pytest.mark.gpu

EXAMPLES, IMAGE, CLASSES = 12, (3, 16, 16), 5
BOUND = 0.7
NOWHERE = Path()


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return torch.device(request.param)


@pytest.fixture
def batch(device):
    draw = torch.Generator().manual_seed(0)
    inputs = torch.rand(EXAMPLES, *IMAGE, generator=draw)
    targets = torch.randint(CLASSES, (EXAMPLES,), generator=draw)
    return Batch(inputs, targets, torch.zeros_like(targets)).each(lambda t: t.to(device))


def gradients(name, batch, options=None):
    """The per-example gradients of one small residual network, by an engine."""
    torch.manual_seed(0)
    model = ResNet9(8, 4, "mish", weight_standardisation=True).build(IMAGE, CLASSES)
    model = model.to(batch.inputs.device)
    options = options or ForwardOptions()
    with full_precision_products():
        return make_engine(name, model, cross_entropy, batch, 1, options)(batch)


def clipped(found):
    factors = (BOUND / found.norms).clamp(max=1)
    with full_precision_products():
        return found.weighted_sum(factors)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ghost", "vmap"])
def test_engines_agree(name, batch):
    slow, fast = (gradients(engine, batch) for engine in ("loop", name))
    assert torch.allclose(fast.norms.double(), slow.norms, rtol=1e-4)  # loop is in float64
    assert torch.allclose(clipped(fast).double(), clipped(slow), atol=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("sums", SUMS)
def test_no_example_exceeds_the_bound_in_any_precision_and_layout(
    sums, precision, channels_last, batch
):
    options = ForwardOptions(Precision(precision), channels_last, Products(sums))
    for example in batch.split(1):
        length = clipped(gradients("ghost", example, options)).double().norm().item()
        assert 0 < length <= BOUND * (1 + 1e-6)


@pytest.mark.slow
def test_the_layout_in_memory_changes_rounding_alone(batch):
    usual, last = (
        gradients("ghost", batch, ForwardOptions(Precision("float32"), flag))
        for flag in (False, True)
    )
    assert torch.allclose(last.norms, usual.norms, rtol=1e-4)
    assert torch.allclose(clipped(last), clipped(usual), atol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 1.05])
def test_noise_is_gaussian_and_on_its_grid(scale, device):
    total = torch.zeros(200_000, device=device)
    noisy = Gaussian().add(total, 2.0, scale * 1.5, seeded("noise", 0, "run", device)).double()
    fits = stats.kstest(noisy.cpu().numpy(), stats.norm(0, 3).cdf).pvalue
    assert fits > 1e-3 if scale == 1 else fits < 1e-6
    steps = noisy / (GRID * 2.0)
    assert torch.equal(steps, steps.round())


@pytest.mark.slow
@pytest.mark.parametrize("physical", [None, EXAMPLES // 2])
def test_graphs_take_the_steps_of_python(physical, batch, device, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda traced, **_: traced)  # on a CPU, for seconds
    steps = []
    for kind in (PrivateStep, GraphStep):
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Mish(), nn.Flatten(), nn.Linear(784, 5)
        model = nn.Sequential(*layers).to(device)
        engine = make_engine("ghost", model, cross_entropy, batch.split(2)[0])
        optimizer = torch.optim.SGD([engine.parameters.theta], lr=0.5)
        streams = (seeded(name, 0, "run", device) for name in ("noise", "counts"))
        split = PhysicalBatches(physical)
        steps.append(kind(engine, dpsgd(BOUND, "corrected"), optimizer, 1.0, 12.0, split, *streams))
        for rate in (0.5, 0.4, 0.3):
            optimizer.param_groups[0]["lr"] = rate
            steps[-1](batch)
    usual, graph = (step.engine.parameters.theta.detach() for step in steps)
    assert torch.allclose(graph, usual, atol=1e-5)
    assert steps[1].replayed == ({"sums": 5} if physical else {"steps": 2}), steps[1].why


def run_on(device, **changes):
    run = Run(
        dataset=Digits(0.2),
        model=ResNet9(8, 4, "relu", weight_standardisation=False),
        method=dpsgd(1.0, "corrected"),
        privacy=Privacy(1.0, None, 1e-5, "rdp"),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5),
        sampler="poisson",
        epochs=2,
        batch_size=200,
        seed=0,
        device=str(device),
    )
    return replace(run, **changes)


def fit(run, **settings):
    return trainer.fit(run, NOWHERE, quiet=True, **settings)


@pytest.mark.sampled(1)
@pytest.mark.slow
def test_a_run_that_was_interrupted_ends_as_an_uninterrupted_one(device, tmp_path, monkeypatch):
    whole = fit(run_on(device))
    checkpoints = Checkpoints(tmp_path, 1e-9)
    step, made = PrivateStep.__call__, []

    def stopping(self, batch):
        made.append(1)
        if len(made) == 10:
            raise KeyboardInterrupt
        return step(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(PrivateStep, "__call__", stopping)
        with pytest.raises(KeyboardInterrupt):
            fit(run_on(device), checkpoints=checkpoints)
    resumed = fit(run_on(device), checkpoints=Checkpoints(tmp_path, None))
    assert resumed.provenance["resumed"] == 1
    assert resumed.privacy == whole.privacy
    # A GPU may add in another order.
    slack = 0 if device.type == "cpu" else 0.02
    assert math.isclose(resumed.metrics["test/loss"], whole.metrics["test/loss"], rel_tol=slack)


@pytest.mark.sampled(1)
@pytest.mark.slow
def test_a_physical_batch_size_that_is_found_changes_rounding_alone(device):
    whole, parts = fit(run_on(device)), fit(run_on(device, physical_batch_size="auto"))
    assert parts.privacy == whole.privacy
    assert math.isclose(parts.metrics["test/loss"], whole.metrics["test/loss"], rel_tol=0.02)


@pytest.mark.slow
def test_scattering_features_are_those_of_the_cpu(device):
    images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    found = Scattering().transform((16, 16), device)(images.to(device))
    assert torch.allclose(found.cpu(), Scattering().transform((16, 16))(images), atol=1e-5)
