"""Attempts at many runs: an error in one does not stop the others."""

import traceback
from collections.abc import Iterator, Sequence

from dpbench.execution.launcher import Attempts, Failure, Outcome
from dpbench.records.reading import load
from dpbench.records.record import Record
from dpbench.system.errors import Unavailable, UserError, first_line
from dpbench.system.lock import Busy


def attempt(overrides: list[str], wait: bool = True, quiet: bool = True) -> Outcome:
    """The path of a run's record, or why the run failed."""
    from dpbench.execution.load_or_run import load_or_run  # which imports torch

    try:
        return load_or_run(overrides, quiet, wait)
    except Busy as reason:
        return Failure(str(reason), busy=True)
    except Unavailable as reason:
        return Failure(str(reason), unavailable=True)
    except UserError as reason:
        return Failure(str(reason))
    except Exception as error:
        return Failure(f"{type(error).__name__}: {first_line(error)}", traceback.format_exc())


def record_of(outcome: Outcome) -> Record | str:
    """The record of a run, or why there is none."""
    if isinstance(outcome, Failure):
        return outcome.reason
    return load(outcome) or f"{outcome.name} is missing or damaged"


def attempt_all(attempts: Attempts, runs: Sequence[list[str]]) -> Iterator[tuple[int, Outcome]]:
    """All runs; those that another process is executing come last, as it may finish them."""
    busy = []
    for number, outcome in attempts(runs, False):
        if isinstance(outcome, Failure) and outcome.busy:
            busy.append(number)
        else:
            yield number, outcome
    if busy:
        for number, outcome in attempts([runs[number] for number in busy], True):
            yield busy[number], outcome
