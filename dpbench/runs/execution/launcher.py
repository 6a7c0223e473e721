"""The interface of launchers, which execute many runs, and the outcomes of runs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

R = TypeVar("R", contravariant=True)


@dataclass(frozen=True)
class Failure:
    """Why a run has no record.

    reason: a sentence. trace: the traceback of an unexpected error. busy: another process is
    executing the run. unavailable: data or weights are missing on this machine and cannot be
    downloaded.
    """

    reason: str
    trace: str = ""
    busy: bool = False
    unavailable: bool = False


Outcome = Path | Failure

Attempts = Callable[[Sequence[R], bool], Iterator[tuple[int, Outcome]]]
"""From runs to the index and the outcome of each, in the order in which they end.

The flag says whether to wait for a run that another process is executing.
"""


class Launcher(Protocol[R]):
    """Executes many runs somewhere."""

    def start(self, jobs: int, folder: Path) -> AbstractContextManager[Attempts[R]]:
        """A function that executes runs; those that are still running on exit are stopped.

        jobs: processes, if the launcher can choose. folder: for the launcher's own files. Raises
        UserError if the launcher is not available.
        """
