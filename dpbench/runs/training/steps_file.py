"""The number of steps that a run has taken, in a small file for other processes to read."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dpbench.runs.records.folder import CHECKPOINTS
from dpbench.system.progress import StepCount

NAME = "steps"
"""The file's name in the folder of the run's checkpoints."""

CHARACTERS = 40
"""The file's constant length: a shorter text would leave the end of the previous one."""


class StepsFile:
    """A display that keeps the number of steps in a file while the run trains.

    The number of steps is public, unlike losses. Failures to write are ignored.
    """

    interval = 2.0

    def __init__(self, folder: Path, total: int):
        self._path, self._total = folder / NAME, total

    def show(self, done: int, text: str, parts: Sequence[StepCount] = ()) -> None:
        # Overwritten in place: emptying or replacing a file waits for the disk.
        in_place = os.O_WRONLY | os.O_CREAT
        with suppress(OSError), os.fdopen(os.open(self._path, in_place, 0o666), "w") as file:
            file.write(f"{done} {self._total}".ljust(CHARACTERS))

    def stop(self) -> None:
        with suppress(OSError):
            self._path.unlink()


def running_steps(results: Path, names: Mapping[str, str]) -> Callable[[], list[StepCount]]:
    """A function that reads the steps of the runs under way in a results folder.

    names: of the runs to show, by digest. Files written before now are ignored, since their runs
    were killed.
    """
    begun = time.time()

    def steps() -> Iterator[StepCount]:
        for path in (results / CHECKPOINTS).glob(f"*/{NAME}"):
            with suppress(OSError, ValueError, KeyError):
                if path.is_file() and path.stat().st_mtime >= begun:
                    done, total = map(int, path.read_text().split())
                    yield StepCount(names[path.parent.name], done, total)

    return lambda: sorted(steps())
