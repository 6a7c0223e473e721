"""A contender's visits, in this process."""

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
