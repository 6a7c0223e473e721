"""A lock file for one process at a time, released whenever its process ends, even if killed.

The `filelock` library can tell neither who holds a lock nor that its last holder was killed.
"""

import fcntl
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dpbench.system.errors import UserError
from dpbench.system.files import unwritable

ATTEMPTS = 100
"""How often a lock file is made, in a folder that others may remove in the meantime."""


FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
"""Those of "a+", but for a link that a stranger may have left: the file it leads to stays."""


class Busy(UserError):
    """Another process holds the lock."""


@contextmanager
def exclusive(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold a lock file, alone in a folder that is named by the locked run.

    Yields whether the last holder was killed or interrupted before it finished. While another
    process holds the lock: warn and wait, or raise Busy if `wait` is false. On exit, unless it is
    interrupted, removes the file, its folder and the parent folder if they are empty. Raises
    UserError if the lock file cannot be created.
    """
    try:
        file, abandoned = _locked(path, wait)
    except OSError as error:
        culprit = path if path.is_symlink() else path.parent
        raise unwritable(culprit, error) from error
    try:
        yield abandoned
    finally:
        if not isinstance(sys.exception(), KeyboardInterrupt):
            _remove(file, path)
        file.close()


def _locked(path: Path, wait: bool) -> tuple[IO[str], bool]:
    """The open file, and whether a killed or interrupted holder left its name in it."""
    while True:
        file = _opened(path)
        _acquire(file, path, wait)
        # The previous holder may have removed the file while we waited.
        if _is_at(file, path):
            file.seek(0)
            abandoned = bool(file.read())
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            return file, abandoned
        file.close()


def _opened(path: Path) -> IO[str]:
    """The file, made with its folder; OSError where that is impossible."""
    attempts = ATTEMPTS
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return os.fdopen(os.open(path, FLAGS, 0o666), "a+")
        except (FileNotFoundError, FileExistsError):  # as if the last holder had just removed it
            attempts -= 1
            if not attempts:
                raise


def _acquire(file: IO[str], path: Path, wait: bool) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read() or "another process"
        message = f"{holder} is already executing run {path.parent.name}"
        if not wait:
            file.close()
            raise Busy(f"{message}.") from None
        warnings.warn(f"{message}: waiting for it to end.", stacklevel=2)
        fcntl.flock(file, fcntl.LOCK_EX)


def _is_at(file: IO[str], path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _remove(file: IO[str], path: Path) -> None:
    """Remove the lock file and empty folders; failures are harmless."""
    with suppress(OSError):  # the folders may contain checkpoints or locks
        if _is_at(file, path):
            path.unlink()
        path.parent.rmdir()
        path.parent.parent.rmdir()
