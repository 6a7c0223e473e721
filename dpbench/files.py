"""Files that are complete or not there, whatever happens while they are written.

A file is written beside its place, under a name of its own, and moved. What a killed process leaves
behind is removed by whoever next writes the same file.
"""

import fcntl
import glob
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from dpbench.errors import UserError

TOKEN = 8
"""Random bytes in the name of a part, which has twice as many hex digits."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is either complete or not there; UserError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise unwritable(path, error) from error


def replace_file(path: Path, *contents: bytes | memoryview, mode: int = 0o666) -> None:
    """Write contents one after the other as one file, at once or not at all; or OSError.

    mode: who may read and write it, less what the umask takes away.
    """
    remove_parts(path.parent, path.name)
    part, file = _new_part(path, mode)
    try:
        with file:
            for content in contents:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, path)
    finally:
        with suppress(OSError):
            part.unlink()


def _new_part(path: Path, mode: int) -> tuple[Path, IO[bytes]]:
    """A new file beside a path, locked for as long as it is open, so that nobody sweeps it away."""
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(TOKEN)}")
        file = os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb")
        with suppress(OSError):  # a file system without locks, or a sweeper who came in between
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if part.exists():
            return part, file
        file.close()


def remove_parts(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes were about to write as the file of that name, or as any file."""
    stem = "*" if name is None else glob.escape(name)
    for part in folder.glob(f".{stem}.{'[0-9a-f]' * 2 * TOKEN}"):
        with suppress(OSError):  # its writer is alive, or it has gone
            _remove_if_abandoned(part)


def _remove_if_abandoned(part: Path) -> None:
    if part.is_file():
        with part.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()


def check_writable(folder: Path) -> None:
    """UserError if no file can be made in a folder, before hours are spent on what goes there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(2**16))  # on a full disk an empty file can be made
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(folder, error) from error


def unwritable(path: Path, error: OSError) -> UserError:
    """What to tell the user of a file or folder that cannot be written."""
    return UserError(
        f"{path} cannot be written ({error.strerror}); set results_dir to a folder that can be."
    )
