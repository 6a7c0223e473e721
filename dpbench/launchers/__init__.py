"""Where many runs are carried out: here, or on a cluster. What makes the runs is not theirs."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from dpbench.attempts import Attempts


class Launcher(Protocol):
    """A place for runs."""

    def start(self, jobs: int, folder: Path) -> AbstractContextManager[Attempts]:
        """A function that attempts runs there; what is still going on at the end is stopped.

        jobs: processes, where they are ours to choose; folder: for files of its own. UserError for
        what is not to be had.
        """
        ...
