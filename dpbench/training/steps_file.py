"""The number of steps that a run has taken, in a small file for other processes to read."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dpbench.records.folder import CHECKPOINTS
from dpbench.system.progress import Steps

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
        self._folder, self._total = folder, total

    def show(self, done: int) -> None:
        text = f"{done} {self._total}".ljust(CHARACTERS).encode()
        # Overwritten in place: emptying or replacing a file waits for the disk.
        path, in_place = self._folder / NAME, os.O_WRONLY | os.O_CREAT
        with suppress(OSError), os.fdopen(os.open(path, in_place, 0o666), "wb") as file:
            file.write(text)

    def stop(self) -> None:
        remove(self._folder)


def remove(folder: Path) -> None:
    """Remove the file, which a killed process may have left."""
    with suppress(OSError):
        (folder / NAME).unlink()


def read(folder: Path, since: float) -> tuple[int, int] | None:
    """The steps taken and their total; None if not written since a time, in seconds."""
    try:
        path = folder / NAME
        if path.stat().st_mtime < since:  # left by a killed run
            return None
        done, total = map(int, path.read_text().split())
    except (OSError, ValueError):
        return None
    return done, total


def running_steps(results: Path, name: Callable[[str], str | None]) -> Callable[[], list[Steps]]:
    """A function that reads the steps of the runs under way in a results folder.

    name: maps a digest to the run's name, or to None for a run of another command. Files written
    before now are ignored, since their runs were killed.
    """
    begun = time.time()

    def steps() -> list[Steps]:
        folders = [path.parent for path in (results / CHECKPOINTS).glob(f"*/{NAME}")]
        named = [(label, path) for path in folders if (label := name(path.name)) is not None]
        found = [(label, read(path, begun)) for label, path in sorted(named)]
        return [Steps(label, *steps) for label, steps in found if steps]

    return steps
