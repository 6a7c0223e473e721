"""Files derived from a publisher's files, verified by a checksum that is written with them.

The checksum of NAME is in NAME.sha256, one line in the format of `sha256sum`.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dpbench.learning.data.fetch.download import writing
from dpbench.system.errors import UserError
from dpbench.system.files import cached_digest_of, digest_of, replace_file


def ensure_cached(paths: Sequence[Path], make: Callable[[Sequence[Path]], None]) -> None:
    """Create the files if one of them has no checksum, and verify them in any case.

    make: writes all of them, at the given paths. Raises UserError for a wrong checksum, for missing
    input of `make`, and if the files cannot be written.
    """
    if not all(map(_has_checksum, paths)):
        with writing(paths[0]):
            if not all(map(_has_checksum, paths)):  # another process may have created them
                _make(paths, make)
    for path in paths:
        # Cached, as the runs of a sweep share gigabytes.
        line = _checksum_of(path).read_text(encoding="utf-8", errors="replace")
        if cached_digest_of(path) != line.partition(" ")[0]:
            raise UserError(f"{path} is truncated or altered: delete it to have it created again.")


def _has_checksum(path: Path) -> bool:
    return path.exists() and _checksum_of(path).exists()


def _checksum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _make(paths: Sequence[Path], make: Callable[[Sequence[Path]], None]) -> None:
    parts = [path.with_name(f"{path.name}.part") for path in paths]
    try:
        make(parts)
        for part, path in zip(parts, paths, strict=True):
            line = f"{digest_of(part)}  {path.name}\n"
            replace_file(_checksum_of(path), line.encode())
            part.replace(path)
    finally:
        for part in parts:
            with suppress(OSError):
                part.unlink()
