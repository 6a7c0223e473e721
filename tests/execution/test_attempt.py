"""Runs are attempted in turn, and those that another process is executing come last."""

from dpbench.execution.attempt import Failure, attempt_all


def test_outcomes_belong_to_the_runs_that_they_are_of():
    runs = [["a"], ["b"], ["c"], ["d"]]

    def attempts(asked, wait):
        for number, (name,) in enumerate(asked):
            busy = name in "ac" and not wait
            yield number, Failure("busy", busy=True) if busy else f"record of {name}"

    found = list(attempt_all(attempts, runs))
    assert found == [(n, f"record of {'abcd'[n]}") for n in (1, 3, 0, 2)]
