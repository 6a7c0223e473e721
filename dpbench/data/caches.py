"""Files made from a publisher's: believed only by the checksum that was written with them.

Beside NAME stands NAME.sha256, one line as `sha256sum` writes it, so that anybody can check it.
"""

import functools
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dpbench.data.fetch.download import writing
from dpbench.errors import UserError
from dpbench.files import replace_file


def cached(paths: Sequence[Path], make: Callable[[Sequence[Path]], None]) -> None:
    """Have the files at the paths: made where one of them has no checksum, and checked in any case.

    make: writes all of them, at the paths that it is given. Raises UserError for a file that has
    another checksum, for what `make` lacks, and where nothing can be written.
    """
    if not all(map(_signed, paths)):
        with writing(paths[0]):
            if not all(map(_signed, paths)):  # another process may have made them meanwhile
                _make(paths, make)
    for path in paths:
        _verify(path)


def _signed(path: Path) -> bool:
    return path.exists() and _checksum_of(path).exists()


def _checksum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _make(paths: Sequence[Path], make: Callable[[Sequence[Path]], None]) -> None:
    parts = [path.with_name(f"{path.name}.part") for path in paths]
    try:
        make(parts)
        for part, path in zip(parts, paths, strict=True):
            line = f"{_digest(part)}  {path.name}\n"
            replace_file(_checksum_of(path), line.encode())
            part.replace(path)
    except UserError as error:
        unsigned = [path for path in paths if path.exists() and not _signed(path)]
        if not unsigned:
            raise
        raise UserError(
            f"{unsigned[0]} has no {_checksum_of(unsigned[0]).name} beside it and is to be made "
            f"again, but {error}"
        ) from error
    finally:
        for part in parts:
            with suppress(OSError):
                part.unlink()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verify(path: Path) -> None:
    said = path.stat()
    if _digest_now(path, said.st_mtime_ns, said.st_size) != _stated(path):
        raise UserError(f"{path} is truncated or altered: delete it to have it made again.")


@functools.lru_cache(maxsize=64)
def _digest_now(path: Path, *_: int) -> str:
    """The digest of a file that was last written then: the runs of a sweep share gigabytes."""
    return _digest(path)


def _stated(path: Path) -> str:
    return _checksum_of(path).read_text(encoding="utf-8", errors="replace").partition(" ")[0]
