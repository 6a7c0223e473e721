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
def exclusive(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock file at a path in a folder of its own, named by what it locks.

    While another process does: wait, and say so, or raise Busy where wait is false. Whoever leaves
    removes the file, its folder, and the one above it if nothing else is in them. UserError where
    no lock can be had there.
    """
    try:
        file = _locked(path, wait)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    try:
        yield
    finally:
        _remove(path)
        file.close()


def _locked(path: Path, wait: bool) -> IO[str]:
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
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            return file
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


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    with suppress(OSError):  # checkpoints are left in it, or others have come
        path.parent.rmdir()
        path.parent.parent.rmdir()
