"""One process at a time: a lock that ends with the process that holds it, however that ends."""

import fcntl
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dpbench.results import unwritable


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file at a path in a folder of its own; wait, and say so, while another does.

    Whoever leaves removes the file, its folder, and the one above it if nothing else is in them.
    UserError where no lock can be had there.
    """
    try:
        file = _locked(path)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    try:
        yield
    finally:
        _remove(path)
        file.close()


def _locked(path: Path) -> IO[str]:
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a+")
        except FileNotFoundError:  # removed by the last holder, between the two lines
            continue
        _wait(file, path)
        # The holder before us may have removed the file that we were waiting for.
        if _is_at(file, path):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            return file
        file.close()


def _wait(file: IO[str], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        warnings.warn(
            f"run {path.parent.name} is being carried out by {file.read() or 'another process'}: "
            "waiting for it to end.",
            stacklevel=2,
        )
        fcntl.flock(file, fcntl.LOCK_EX)


def _is_at(file: IO[str], path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    with suppress(OSError):  # checkpoints are left in it, or others have come
        path.parent.rmdir()
        path.parent.parent.rmdir()
