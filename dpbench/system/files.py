"""Atomic writes and checksums of files.

A file is written under a temporary name in the same folder (a part) and then renamed. Parts left by
a killed process are removed by the next write of the same file.
"""

import fcntl
import fnmatch
import functools
import glob
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import IO

from dpbench.system.errors import UserError

TOKEN_BYTES = 8
"""Random bytes in the name of a part, written as twice as many hex digits."""

STEM = 50
"""Characters of a folder's name in that of its part, which must not be too long."""


def write_atomically(
    path: Path, content: bytes, mode: int = 0o666, setting: str = "results_dir"
) -> None:
    """Write a file atomically; UserError where it cannot be written.

    mode: as for `replace_file`. setting: the setting that names the file or its folder.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content, mode=mode)
    except OSError as error:
        raise unwritable(path, error, setting) from error


def write_once(path: Path, content: bytes) -> bytes:
    """The content of a file for its owner's eyes only, written if there is none: all processes that
    call it at once get that of the first. UserError where it cannot be written."""
    if not path.exists():
        whole = path.with_name(f"{path.name}.{secrets.token_hex(TOKEN_BYTES)}")
        write_atomically(whole, content, 0o600)
        with suppress(FileExistsError):
            os.link(whole, path)
        whole.unlink()
    return path.read_bytes()


def replace_file(path: Path, *contents: bytes | memoryview, mode: int = 0o666) -> None:
    """Write the concatenated contents to a file atomically; OSError where it cannot be written.
    mode: permissions before the umask."""
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
    """A new part, locked while it is open, so that no other process considers it abandoned."""
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(TOKEN_BYTES)}")
        # Opened at once, as a failure in between would leave the part behind.
        file = BufferedWriter(FileIO(part, "x", opener=functools.partial(os.open, mode=mode)))
        with suppress(OSError):  # a file system without locks, or another process was faster
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if part.exists():
            return part, file
        file.close()


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write to, renamed to `path` on exit, and removed with an exception; OSError where
    there is something at `path`."""
    remove_parts(path.parent, path.name[:STEM])
    part = path.with_name(f".{path.name[:STEM]}.{secrets.token_hex(TOKEN_BYTES)}")
    part.mkdir()
    handle = os.open(part, os.O_RDONLY)
    with suppress(OSError):  # a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield part
        part.rename(path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    finally:
        os.close(handle)


def remove_parts(folder: Path, name: str | None = None) -> None:
    """Remove parts left behind by killed processes: of one name, or of all names in a folder."""
    stem = "*" if name is None else glob.escape(name)
    for part in folder.glob(f".{stem}.{'[0-9a-f]' * 2 * TOKEN_BYTES}"):
        with suppress(OSError):  # still being written, or removed by another process
            _remove_if_abandoned(part)


def _remove_if_abandoned(part: Path) -> None:
    if part.is_file():
        with part.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
    elif part.is_dir():
        handle = os.open(part, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(part)
        finally:
            os.close(handle)


def files_in(folder: Path, pattern: str) -> list[Path]:
    """The paths in a folder that match a pattern, sorted; none where there is no such folder.

    Raises OSError for a folder that cannot be read: `Path.glob` would find nothing in it.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in sorted(fnmatch.filter(names, pattern))]


def digest_of(path: Path, algorithm: str = "sha256") -> str:
    """The checksum of a file in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def cached_digest_of(path: Path, algorithm: str = "sha256") -> str:
    """The checksum of a file, cached until its size or modification time changes."""
    status = path.stat()
    return _cached_digest(path, algorithm, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _cached_digest(path: Path, algorithm: str, *_: int) -> str:
    return digest_of(path, algorithm)


def check_writable(folder: Path, setting: str = "results_dir") -> None:
    """UserError if no file can be created in a folder: before a run, not after hours of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(2**16))  # even a full disk takes an empty file
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(folder, error, setting) from error


def refuse_folders(*files: Path) -> None:
    """UserError for a folder in the place of a file, before the training and not after it."""
    for file in files:
        if os.path.isdir(file):  # False, and not an error, where a folder cannot be read
            raise UserError(
                f"{file} is a folder in the place of a file: move it, or set another results_dir."
            )


def unwritable(path: Path, error: OSError, setting: str = "results_dir") -> UserError:
    """The error for a file or folder, named by a setting, that cannot be written."""
    other = "a writable folder" if setting == "results_dir" else "a path that can be written"
    links = (link for link in (path, *path.parents) if link.is_symlink() and not link.exists())
    if isinstance(error, FileExistsError) and (link := next(links, None)):
        why = f"{link} is a link to {link.readlink()}, which does not exist"
    else:
        why = str(error.strerror)
    return UserError(f"{path} cannot be written ({why}); set {setting} to {other}.")


def check_replaceable(path: Path) -> None:
    """UserError if `out` names a device, a pipe or a link, which a file would replace."""
    if path.is_symlink() or not (path.is_file() or path.is_dir() or not path.exists()):
        raise UserError(
            f"out={path} is not a regular file, and would be replaced by one: name another file."
        )
