"""A step that runs out of memory is repeated in smaller parts, and is the same step."""

import dataclasses

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import make_engine
from dpbench.step.mechanism.dry_run import fit_memory
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.fairlens import fairlens
from dpbench.system.errors import UserError
from tests.step.mechanism.step_methods import METHODS
from tests.steps import stream, theta


class Cramped:
    """An engine that runs out of memory with more than so many examples, at once or late."""

    def __init__(self, engine, holds: int, error=torch.OutOfMemoryError, late: bool = False):
        self.engine, self.holds, self.error, self.late = engine, holds, error, late
        self.parameters, self.model, self.loss = engine.parameters, engine.model, engine.loss
        self.sizes: list[int] = []

    def __call__(self, batch, shift=None):
        self.sizes.append(len(batch))
        gradients = self.engine(batch, shift)
        if len(batch) <= self.holds:
            return gradients
        if self.late:
            gradients.weighted_sum = self._fail
            return gradients
        return self._fail()

    def _fail(self, *_):
        raise self.error("out of memory: tried to allocate 20.00 GiB")


def cramped(step: PrivateStep, holds: int, **settings) -> PrivateStep:
    engine = Cramped(step.engine, holds, **settings)
    physical = PhysicalBatches(step.physical.size, adaptive=True)
    return dataclasses.replace(step, engine=engine, physical=physical)


def everything(step: PrivateStep, batches: list[Batch]) -> list[torch.Tensor]:
    """What some steps left behind: reports, parameters, the clip's state, and the generators'."""
    reports = [torch.stack(tuple(step(batch))) for batch in batches]
    state = getattr(step.clip, "bounds", getattr(step.clip, "strict_bound", 0.0))
    draws = [
        torch.tensor(step.noise_stream.state_dict()["drawn"]),
        torch.tensor(step.count_stream.state_dict()["drawn"]),
        torch.get_rng_state(),
    ]
    return [*reports, theta(step), torch.as_tensor(state), *draws]


@pytest.mark.sampled(20)
@pytest.mark.parametrize("late", [False, True], ids=["gradient", "sum"])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError, MemoryError])
@pytest.mark.parametrize("name", METHODS)
def test_a_step_out_of_memory_is_the_step_of_the_size_that_fits(
    step_of, batch_of, name, error, late
):
    batches = [batch_of(n, seed=n) for n in (11, 3, 0, 9)]
    troubled = cramped(step_of(METHODS[name]), 2, error=error, late=late)
    for before, after in zip(
        everything(step_of(METHODS[name], physical=2), batches),
        everything(troubled, batches),
        strict=True,
    ):
        assert torch.equal(before, after)
    assert troubled.physical.size == 2
    assert max(troubled.engine.sizes[-10:]) <= 2, "a size that did not fit was tried again"


def test_an_example_draws_the_same_in_a_repetition(batch_of):
    """Dropout of a pass that failed is as if it had never been drawn."""

    def step() -> PrivateStep:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 64), nn.Dropout(), nn.Linear(64, 3)).double()
        engine = make_engine("ghost", model, cross_entropy, batch_of(2))
        sgd = torch.optim.SGD([engine.parameters.theta], lr=0.1)
        method = METHODS["dpsgd_f"]
        return PrivateStep(engine, method, sgd, 1.0, 8.0, PhysicalBatches(3), *map(stream, (1, 2)))

    batches = [batch_of(n, seed=n) for n in (7, 5)]
    untroubled = everything(step(), batches)
    # In vain: 7, late in the first pass; then 3.
    troubled = cramped(dataclasses.replace(step(), physical=PhysicalBatches()), 3, late=True)
    assert all(map(torch.equal, untroubled, everything(troubled, batches)))


def test_memory_that_runs_out_between_the_passes_asks_no_second_time(step_of, batch_of):
    """The counts were released when the sum failed: only the sum is made again."""
    step, asked = cramped(step_of(METHODS["dpsgd_f"]), 4, late=True), []
    answer = step._release_counts
    step._release_counts = lambda *arguments: (asked.append(1), answer(*arguments))
    step(batch_of(8))
    assert len(asked) == 1
    assert step.engine.sizes == [8, 4, 4]


def test_one_example_that_does_not_fit_ends_the_run_with_a_sentence(step_of, batch_of):
    step = cramped(step_of(METHODS["dpsgd"]), 0)
    start = theta(step)
    with pytest.raises(UserError, match="even with one example at a time"):
        step(batch_of(5))
    assert torch.equal(theta(step), start)


@pytest.mark.parametrize("physical", [None, 4])
def test_without_adapting_the_sentence_names_the_way_out(step_of, batch_of, physical):
    step = cramped(step_of(METHODS["dpsgd"], physical=physical), 3)
    step.physical.adaptive = False
    size = physical or 5
    with pytest.raises(UserError, match=f"with {size} examples at once; choose physical_batch_siz"):
        step(batch_of(5))


def test_a_method_that_needs_whole_batches_is_not_told_to_split_them(step_of, batch_of):
    step = cramped(step_of(fairlens(0.5, 1.0, 1.0, "corrected")), 3)
    step.physical.adaptive = False
    with pytest.raises(UserError, match="fairlens needs each batch in one piece; choose a smaller"):
        step(batch_of(5))


def test_other_errors_are_passed_on(step_of, batch_of):
    for adapts in (True, False):
        step = cramped(step_of(METHODS["dpsgd"]), 3, error=ValueError)
        step.physical.adaptive = adapts
        with pytest.raises(ValueError, match="tried to allocate"):
            step(batch_of(5))


def test_a_size_found_by_trying_moves_nothing(step_of, batch_of):
    method = METHODS["dpsgd_f"]
    batches = [batch_of(n, seed=n) for n in (6, 9)]
    plain, tried = step_of(method, physical=4), cramped(step_of(method), 4)
    draws = torch.get_rng_state()
    fit_memory(tried, batch_of(2))
    assert torch.equal(torch.get_rng_state(), draws)
    assert tried.physical.size == 4
    assert tried.engine.sizes == [1, 2, 4, 8]
    assert all(map(torch.equal, everything(plain, batches), everything(tried, batches)))


def test_with_enough_memory_nearly_every_batch_is_one_piece(step_of, batch_of):
    step = step_of(METHODS["dpsgd"], expected=100.0)
    fit_memory(step, batch_of(2))
    assert step.physical.size == 160


def test_a_size_that_was_found_is_part_of_the_state(step_of, batch_of):
    step, other = (step_of(dpsgd(0.5, "corrected")) for _ in range(2))
    step.physical.size = 3
    step(batch_of(6))
    other.load_state_dict(step.state_dict())
    assert other.physical.size == 3
    assert torch.equal(theta(other), theta(step))
    for each in (step, other):
        each(batch_of(6, seed=1))
    assert torch.equal(theta(other), theta(step))
