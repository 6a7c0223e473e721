"""Runs are attempted in turn, and those that another process is executing come last."""

from dpbench.runs.execution.attempt import Failure, attempt_all
from dpbench.runs.execution.run_config import RunConfig


def test_outcomes_belong_to_the_runs_that_they_are_of():
    refused = Failure("unknown")
    runs = [RunConfig((name,), {}) for name in "abcd"]

    def attempts(asked, wait):
        for number, run in enumerate(asked):
            (name,) = run.overrides
            busy = name in "ac" and not wait
            yield number, Failure("busy", busy=True) if busy else f"record of {name}"

    found = list(attempt_all(attempts, [*runs, refused]))
    assert found == [(4, refused), *((n, f"record of {'abcd'[n]}") for n in (1, 3, 0, 2))]
