"""A contender's visits, in this process."""

import gc
from dataclasses import replace

import pytest
import torch
from dpbench.benchmarks.step_cost.cases import STEP
from dpbench.benchmarks.step_cost.contender_process import TimedStepper

CASE = STEP["cpu"][0]


class SlowAtFirst:
    """A stepper that counts its steps, of which one with cold caches takes long."""

    def __init__(self, clock):
        self.steps, self._clock = 0, clock

    def __call__(self):
        self.steps += 1
        self._clock.now += 1.0 if self._clock.cold else 0.01
        self._clock.cold = False

    def wait(self):
        pass


class Clock:
    now, cold = 0.0, False


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(
        "dpbench.benchmarks.step_cost.contender_process.time.perf_counter", lambda: clock.now
    )
    return clock


def test_what_precedes_a_visit_does_not_count(clock):
    stepper = SlowAtFirst(clock)
    timed = TimedStepper(lambda case, device: stepper, CASE, torch.device("cpu"))
    assert timed.warm_up() == 2
    clock.cold, before = True, stepper.steps
    assert timed.visit() == pytest.approx(0.01)
    assert stepper.steps == before + 3


def test_sizes_that_are_new_to_a_run_are_new_in_each_visit(clock):
    """Only the steps of a new stepper see them, and all of these count."""
    made = []

    def make(case, device):
        made.append(SlowAtFirst(clock))
        return made[-1]

    timed = TimedStepper(make, replace(CASE, epoch=4), torch.device("cpu"))
    assert timed.warm_up() == 4
    for _ in range(2):
        clock.cold = True
        assert timed.visit() == pytest.approx((1.0 + 3 * 0.01) / 4)
    assert [stepper.steps for stepper in made[1:]] == [4, 4]


def test_what_is_left_of_trying_an_engine_is_not_taken_from_the_memory(clock):
    """It is in cycles, which a later step may collect."""

    def make(case, device):
        left: list[object] = [torch.ones(2**24)]
        left.append(left)
        return SlowAtFirst(clock)

    timed = TimedStepper(make, CASE, torch.device("cpu"))
    gc.collect()
    timed.warm_up()
    assert timed.memory() > -(2**24)  # of the 2**26 bytes
