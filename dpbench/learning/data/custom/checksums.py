"""Checksums of the user's own files, by which runs on them are named."""

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

from dpbench.system.errors import UserError
from dpbench.system.files import digest_of
from dpbench.system.validate import path_of

Files = tuple[tuple[Path, int, int], ...]
"""Files with their sizes and the times of their last changes."""

LITTER = {"__macosx", "desktop.ini", "ehthumbs.db", "thumbs.db"}
"""Names that systems leave in folders, in lower case, beside those that begin with a dot."""


def source_path(key: str, value: object, kind: str) -> Path:
    """The file or folder that a setting names; UserError if there is none. kind: "file" or
    "folder"."""
    if value is None:
        raise UserError(f"{key} is not set, as no record has the path of data: give {key}=PATH.")
    path = path_of(key, value, kind).expanduser()
    if not (path.is_file() if kind == "file" else path.is_dir()):
        raise UserError(f"{key}={path} is not a {kind}: give its path, as seen from {Path.cwd()}.")
    return path


def verified(key: str, path: Path, expected: object, expecting: str = "dataset.checksum") -> str:
    """The checksum of a file or folder; UserError if another one is expected.

    key: its setting. expecting: that of the expected checksum.
    """
    actual = checksum(path)
    if expected not in (None, actual):
        raise UserError(
            f"{key}={path} has the checksum {actual}, but {expecting} is {expected}: give the "
            f"original data, or leave out {expecting} for a new run on these."
        )
    return actual


def checksum(path: Path) -> str:
    """`sha256:...` of a file, or of the names and contents of all files in a folder."""
    try:
        return _checksum(path, files_of(path))
    except OSError as error:
        culprit = error.filename or path
        raise UserError(f"{culprit} cannot be read: {error.strerror or error}.") from error


def files_of(path: Path) -> Files:
    """A file, or all files below a folder except hidden ones, sorted by name."""
    files = [path] if path.is_file() else sorted(_below(path))
    status = [file.stat() for file in files]
    return tuple((f, s.st_size, s.st_mtime_ns) for f, s in zip(files, status, strict=True))


def shown(folder: Path) -> list[Path]:
    """What a folder contains, without what is hidden and what systems leave in it."""
    names = (path for path in folder.iterdir() if path.name.lower() not in LITTER)
    return [path for path in names if not path.name.startswith(".")]


def _below(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """The files below a folder. Links are followed, but not to a folder that they are in."""
    within = above | {folder.resolve()}
    for path in shown(folder):
        if path.is_dir():
            yield from _below(path, within) if path.resolve() not in within else ()
        elif path.is_file() or not path.exists():  # a link to nothing, so that it is refused
            yield path


@functools.lru_cache(maxsize=16)
def _checksum(path: Path, files: Files) -> str:
    if path.is_file():
        return f"sha256:{digest_of(path)}"
    digest = hashlib.sha256()
    for file, _, _ in files:
        digest.update(f"{file.relative_to(path).as_posix()}\0{digest_of(file)}\n".encode())
    return f"sha256:{digest.hexdigest()}"
