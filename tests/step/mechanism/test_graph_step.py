"""A step that is replayed as a graph is the step that its Python code takes, bit for bit."""

import warnings
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.fx.experimental.proxy_tensor import make_fx

from dpbench.learning.data.examples import Batch
from dpbench.step.clipping import Abadi
from dpbench.step.gradients import EngineFallback
from dpbench.step.mechanism import draws, graph_step, noise
from dpbench.step.mechanism.graph_step import MOST, GraphStep
from dpbench.step.mechanism.schedules import Linear, Schedules
from dpbench.step.mechanism.step import PrivateStep, Recorder
from dpbench.step.mechanism.streams import GpuStream
from dpbench.step.methods.bam import bam
from dpbench.step.methods.dp_mf import dp_mf
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_global import dpsgd_global_adapt
from dpbench.step.methods.sgd import sgd
from tests.steps import theta

pytestmark = pytest.mark.slow

DPSGD = dpsgd(0.5, "corrected")
CPU = torch.device("cpu")


@pytest.fixture
def uncompiled(monkeypatch):
    """Graphs that are captured and not compiled, which takes seconds."""
    monkeypatch.setattr(torch, "compile", lambda traced, **_: traced)


@pytest.fixture
def pair(step_of):
    """pair(method): the same private step twice, once as a graph; changed by `change`."""

    def make(method=DPSGD, change: Callable = lambda _: {}, **settings):
        made = []
        for kind in (PrivateStep, GraphStep):
            step = step_of(method, **settings)
            given = {field.name: getattr(step, field.name) for field in fields(step)}
            made.append(kind(**(given | change(step))))
        return made

    return make


def take(steps: list, batches: list[Batch]) -> None:
    """Takes the same steps with both, and compares the bits of all that they leave."""
    for batch in batches:
        (losses, finite), replayed = (step(batch) for step in steps)
        assert torch.allclose(replayed.losses, losses, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(replayed.finite, finite)
        assert torch.equal(*map(theta, steps))
        assert torch.equal(*(step.released.gradient for step in steps))
    states = [repr(step.state_dict()) for step in steps]
    assert states[0] == states[1]


def of_sizes(batch_of, *sizes: int) -> list[Batch]:
    return [batch_of(size, seed=i) for i, size in enumerate(sizes)]


def test_rates_and_noise_change_in_one_graph_for_each_size(pair, batch_of):
    counters.clear()
    falling = Schedules(1, Linear(1.0, 0.1), Linear(1.0, 0.5))
    steps = pair(change=lambda _: {"schedule": falling, "steps": 12})
    take(steps, of_sizes(batch_of, 8, 8, 9, 8, 9, 0, 9, 1, 8, 0, 0))
    assert steps[1].replayed == {"steps": 5}
    assert counters["stats"]["unique_graphs"] == 2
    assert not steps[1].why


@pytest.mark.usefixtures("uncompiled")
def test_examples_that_are_not_finite_are_left_out_by_a_graph_of_others(pair, batch_of):
    batches = of_sizes(batch_of, 8, 8, 8, 8)
    batches[2].inputs[3] = torch.nan
    batches[3].inputs[:] = torch.inf
    steps = pair()
    take(steps, batches)
    assert steps[1].replayed["steps"] == 3


def with_optimizer(kind, **settings):
    return lambda step: {"optimizer": kind([step.engine.parameters.theta], **settings)}


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    "change",
    [
        with_optimizer(torch.optim.SGD, lr=0.1, momentum=0.9),
        with_optimizer(torch.optim.Adam, lr=0.1),
    ],
)
def test_other_optimisers_take_their_step_after_the_graph(pair, batch_of, change):
    steps = pair(change=change)
    take(steps, of_sizes(batch_of, 8, 8, 8, 8))
    assert steps[1].replayed["steps"] == 3


def test_random_draws_of_the_model_go_on(pair, batch_of):
    def with_dropout(model):
        return nn.Sequential(*model[:2], nn.Dropout(0.5), model[2])

    steps = pair(around=with_dropout)
    for batch in of_sizes(batch_of, 8, 8, 8, 8):
        state = torch.get_rng_state()
        take(steps[:1] * 2, [])
        one = steps[0](batch)
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        assert torch.equal(steps[1](batch).losses, one.losses)
        assert torch.equal(torch.get_rng_state(), after)
    assert torch.equal(*map(theta, steps))
    assert steps[1].replayed["steps"] == 3


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    ("method", "change"),
    [
        (DPSGD, lambda _: {"recorder": Recorder()}),
        (sgd(), lambda _: {}),
        (dp_mf(0.5, 3, "abadi", "flat"), lambda _: {}),
    ],
)
def test_what_is_not_one_graph_has_its_sums_replayed(pair, batch_of, method, change):
    steps = pair(method, change)
    take(steps, of_sizes(batch_of, 8, 8, 8))
    assert steps[1].replayed == {"sums": 2}
    assert not steps[1].why


@pytest.mark.usefixtures("uncompiled")
def test_physical_batches_of_one_size_are_one_graph(pair, batch_of):
    steps = pair(physical=4)
    take(steps, of_sizes(batch_of, 15, 9, 12, 10))
    assert steps[1].said.startswith("0 steps and 9 sums replayed")  # of the ten parts of four


@pytest.mark.usefixtures("uncompiled")
def test_a_new_clip_has_a_new_graph(pair, batch_of):
    steps = pair()
    take(steps, of_sizes(batch_of, 8, 8, 8))
    for step in steps:
        step.clip = Abadi(0.01)
    take(steps, of_sizes(batch_of, 8, 8, 8))
    assert steps[1].replayed["steps"] == 5


class Changing(nn.Module):
    """Has numbers that its owner may change between steps."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model, self.share = model, 0.5
        self.register_buffer("shift", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(self.share * x + self.shift)


CHANGES = {
    "a number": lambda step: setattr(step.engine.model, "share", 2.0),
    "a buffer": lambda step: setattr(step.engine.model, "shift", torch.zeros(())),
    "in a buffer": lambda step: step.engine.model.shift.zero_(),
    "a layer": lambda step: step.engine.model.model.__setitem__(1, nn.Sigmoid()),
    "a hook": lambda step: step.engine.model.model[1].register_forward_hook(lambda *x: 2 * x[-1]),
    "the expected size": lambda step: setattr(step, "expected_batch_size", 5.0),
    "a parameter": lambda step: step.engine.parameters.theta.detach().mul_(2),
}


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_steps_is_no_constant_of_a_graph(pair, batch_of, change):
    steps = pair(around=Changing, engine="ghost")
    take(steps, of_sizes(batch_of, 8, 8, 8))
    for step in steps:
        CHANGES[change](step)
    take(steps, of_sizes(batch_of, 8, 8, 8))
    assert steps[1].replayed["steps"] == 5


class Reading(nn.Module):
    """Might choose what it computes by a value of the examples."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else x + 0


class Choosing(Abadi):
    """Chooses by a value, which is not known while a step is captured."""

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        factors = super().factors(norms, groups)
        return factors if norms.max() > 0 else factors + 0


def read_by_python(model):
    return nn.Sequential(*model, Reading())


REFUSED = {
    "bam computes its own gradients": {"method": bam(0.5, 0.1)},
    "the clip of dpsgd_global_adapt changes": {
        "method": dpsgd_global_adapt(0.5, 3.0, 0.8, 0.1, 2.0, "corrected")
    },
    "engine=vmap is not ghost": {"engine": "vmap"},
    "the clip of dpsgd changes": {
        "change": lambda _: {"schedule": Schedules(Linear(1, 2), 1, 1), "steps": 9}
    },
    "torch cannot capture them": {"method": replace(DPSGD, clip=Choosing(0.5))},
    "Python reads values of the examples": {"around": read_by_python},
}


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_a_graph_is_taken_as_ever_and_says_why(pair, batch_of, why):
    steps = pair(**REFUSED[why])
    with pytest.warns(EngineFallback, match=f"not all are graphs: {why}"):
        take(steps, of_sizes(batch_of, 8, 8, 8))
    assert not steps[1].replayed
    assert why in steps[1].said


@pytest.mark.usefixtures("uncompiled")
def test_more_than_a_few_sizes_are_not_captured(pair, batch_of):
    steps = pair()
    sizes = range(3, 3 + MOST + 1)
    with pytest.warns(EngineFallback, match=f"batches have more than {MOST} sizes"):
        take(steps, of_sizes(batch_of, *sizes, *sizes))
    with warnings.catch_warnings():  # said once
        take(steps, of_sizes(batch_of, *sizes))
    assert steps[1].replayed["steps"] == 2 * MOST


def on_gpu_stream(_):
    return {"noise_stream": GpuStream(bytes(32), CPU)}


@pytest.mark.usefixtures("uncompiled")
def test_a_stream_of_a_gpu_is_that_of_other_steps(pair, batch_of, monkeypatch):
    for module in (draws, noise, graph_step):
        monkeypatch.setattr(module, "noise_kernel", lambda: None)
    steps = pair(change=on_gpu_stream)
    take(steps, of_sizes(batch_of, 8, 8, 8))
    assert steps[1].replayed["steps"] == 2


def test_a_graph_with_a_gpus_noise_is_given_its_place(pair, batch_of):
    pytest.importorskip("triton")
    step, batch = pair(change=on_gpu_stream)[1], batch_of(8)
    size = len(step.engine.parameters)
    for times in range(3):
        *_, key, place = inputs = step._inputs(batch, step.noise_stream)
        assert (int(place), key.dtype) == (times * size, torch.int32)
    traced = make_fx(
        lambda *given: step._step(*given), tracing_mode="fake", _allow_non_fake_inputs=True
    )(*inputs)
    (call,) = [node for node in traced.graph.nodes if str(node.target).startswith("dpbench.")]
    given = [node for node in traced.graph.nodes if node.op == "placeholder"]
    assert call.args[2:5] == (given[-2], given[-1], 0)
