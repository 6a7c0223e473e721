"""Where many runs are carried out: here, or on a cluster. What makes the runs is not theirs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


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


class Launcher(Protocol):
    """A place for runs."""

    def start(self, jobs: int, folder: Path) -> AbstractContextManager[Attempts]:
        """A function that attempts runs there; what is still going on at the end is stopped.

        jobs: processes, where they are ours to choose; folder: for files of its own. UserError for
        what is not available.
        """
        ...
