"""One process at a time: a lock that ends with the process that holds it, however that ends."""

import fcntl
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dpbench.errors import UserError
from dpbench.files import unwritable


class Busy(UserError):
    """What is to be done is being done by another process."""


@contextmanager
def exclusive(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file at a path in a folder of its own, named by what it locks.

    Yields whether the last holder was killed, and so left its work undone. While another process
    holds it: wait, and say so, or raise Busy where wait is false. Whoever leaves removes the file,
    its folder, and the one above it if nothing else is in them. UserError where no lock can be had
    there.
    """
    try:
        file, abandoned = _locked(path, wait)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    try:
        yield abandoned
    finally:
        _remove(file, path)
        file.close()


def _locked(path: Path, wait: bool) -> tuple[IO[str], bool]:
    """The open file, and whether a holder that was killed has left its name in it."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a+")
        except (FileNotFoundError, FileExistsError):  # the last holder removed it in the meantime
            if path.parent.is_file():
                raise
            continue
        _acquire(file, path, wait)
        # The holder before us may have removed the file that we were waiting for.
        if _is_at(file, path):
            file.seek(0)
            abandoned = bool(file.read())
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            return file, abandoned
        file.close()


def _acquire(file: IO[str], path: Path, wait: bool) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read() or "another process"
        said = f"run {path.parent.name} is being carried out by {holder}"
        if not wait:
            file.close()
            raise Busy(f"{said}.") from None
        warnings.warn(f"{said}: waiting for it to end.", stacklevel=2)
        fcntl.flock(file, fcntl.LOCK_EX)


def _is_at(file: IO[str], path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _remove(file: IO[str], path: Path) -> None:
    """Remove what is left of the lock; what cannot be removed harms nobody."""
    with suppress(OSError):  # checkpoints are left in the folder, or others have come
        if _is_at(file, path):
            path.unlink()
        path.parent.rmdir()
        path.parent.parent.rmdir()
