"""The steps that a run has made, in a small file that other processes may read."""

import os
from contextlib import suppress
from pathlib import Path

NAME = "steps"
"""The file's name in the folder of the run's checkpoints."""

CHARACTERS = 40
"""The file's constant length: a shorter text would leave the end of the one before."""


class StepsFile:
    """A display that nobody sees: it keeps the number of steps in a file while the run trains.

    The number of steps is public, unlike losses. A file that cannot be written is left out.
    """

    interval = 2.0

    def __init__(self, path: Path, total: int):
        self._path, self._total = path, total

    def show(self, done: int) -> None:
        text = f"{done} {self._total}".ljust(CHARACTERS).encode()
        # Written over the old text: a file that is emptied or replaced waits for the disk.
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.pwrite(file, text, 0)
            finally:
                os.close(file)

    def stop(self) -> None:
        remove(self._path)


def remove(path: Path) -> None:
    """Remove the file, which a killed process may have left."""
    with suppress(OSError):
        path.unlink()


def read(folder: Path, since: float) -> tuple[int, int] | None:
    """The steps made and their total; None where none were written since that time, in seconds."""
    try:
        path = folder / NAME
        if path.stat().st_mtime < since:  # of a run that was killed
            return None
        done, total = map(int, path.read_text().split())
    except (OSError, ValueError):
        return None
    return done, total
