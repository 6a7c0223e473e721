"""Attempts at many runs: an error in one does not stop the others."""

import traceback
from collections.abc import Iterator, Sequence

from dpbench.runs.execution.launcher import Attempts, Failure, Outcome
from dpbench.runs.execution.run_config import RunConfig, run_config
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record
from dpbench.system.errors import Unavailable, UserError, first_line
from dpbench.system.lock import Busy


def attempt(run: RunConfig, wait: bool = True, quiet: bool = True) -> Outcome:
    """The path of a run's record, or why the run failed."""
    from dpbench.runs.execution.load_or_run import load_or_run  # which imports torch

    try:
        return load_or_run(run, quiet, wait)
    except Busy as reason:
        return Failure(str(reason), busy=True)
    except UserError as reason:
        return _refused(reason)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also a plug-in's exit, or a panic of Rust
        return Failure(f"{type(error).__name__}: {first_line(error)}", traceback.format_exc())


def configured(overrides: Sequence[str]) -> RunConfig | Failure:
    """The configuration of a run, or why it is refused."""
    try:
        return run_config(overrides)
    except UserError as reason:
        return _refused(reason)


def _refused(reason: UserError) -> Failure:
    return Failure(str(reason), unavailable=isinstance(reason, Unavailable))


def record_of(outcome: Outcome) -> Record | str:
    """The record of a run, or why there is none."""
    if isinstance(outcome, Failure):
        return outcome.reason
    return load(outcome) or f"{outcome.name} is missing or damaged"


def attempt_all(
    attempts: Attempts[RunConfig], runs: Sequence[RunConfig | Failure]
) -> Iterator[tuple[int, Outcome]]:
    """All runs, after those that are refused already; those that another process is executing come
    last, as it may finish them."""
    waiting: dict[int, RunConfig] = {}
    for number, run in enumerate(runs):
        if isinstance(run, Failure):
            yield number, run
        else:
            waiting[number] = run
    for wait in (False, True):
        numbers, asked, waiting = [*waiting], [*waiting.values()], {}
        for place, outcome in attempts(asked, wait) if asked else ():
            if isinstance(outcome, Failure) and outcome.busy and not wait:
                waiting[numbers[place]] = asked[place]
            else:
                yield numbers[place], outcome
