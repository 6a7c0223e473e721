"""One of many runs: whatever it dies of, the others go on."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import Unavailable, UserError
from dpbench.lock import Busy
from dpbench.runs import once


@dataclass(frozen=True)
class Failure:
    """Why a run has no record, in a sentence; trace: where it failed, if nobody expected that.

    busy: only because another process is carrying it out. unavailable: because it lacks data or
    weights that this machine neither has nor gets.
    """

    reason: str
    trace: str = ""
    busy: bool = False
    unavailable: bool = False


Outcome = Path | Failure

Attempts = Callable[[Sequence[list[str]], bool], Iterator[tuple[int, Outcome]]]
"""Attempts runs, given by their overrides: the number of each and what became of it, as they end.

The flag says whether to wait for a run that another process is carrying out.
"""


def attempt(overrides: list[str], wait: bool = True, quiet: bool = True) -> Outcome:
    """The path of a run's record, or the reason why there is none."""
    try:
        return once(overrides, quiet, wait)
    except Busy as reason:
        return Failure(str(reason), busy=True)
    except Unavailable as reason:
        return Failure(str(reason), unavailable=True)
    except UserError as reason:
        return Failure(str(reason))
    except Exception as error:
        (line, *_) = [*str(error).splitlines(), ""]
        return Failure(f"{type(error).__name__}: {line}", traceback.format_exc())


def all_of(attempts: Attempts, runs: Sequence[list[str]]) -> Iterator[tuple[int, Outcome]]:
    """All runs; last those that others were carrying out, for then their records may be there."""
    busy = []
    for number, outcome in attempts(runs, False):
        if isinstance(outcome, Failure) and outcome.busy:
            busy.append(number)
        else:
            yield number, outcome
    if busy:
        for number, outcome in attempts([runs[number] for number in busy], True):
            yield busy[number], outcome
