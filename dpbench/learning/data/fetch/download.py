"""Files of the original publishers: downloaded, and verified by their checksum.

Interrupted downloads resume, and one mirror stands in for another, which `pooch` does not offer.
"""

import gzip
import lzma
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from ssl import SSLError
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from filelock import FileLock
from rich.console import Console
from rich.progress import Progress

from dpbench.system.errors import Unavailable, UserError
from dpbench.system.files import cached_digest_of, digest_of

ATTEMPTS = 3  # per mirror, if transfers break off or leftovers are stale
TIMEOUT = 30  # seconds without a byte
CHUNK = 1 << 16

NETWORK = (URLError, HTTPException, ConnectionError, TimeoutError, SSLError)
BROKEN_ARCHIVE = (
    zipfile.BadZipFile,
    KeyError,  # a .zip without the member
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
)


@dataclass(frozen=True)
class Source:
    """One file of a publisher.

    path: relative to the data folder. checksum: of the file there, "md5:..." or "sha256:...". page:
    the publisher's web page. urls: mirrors in order of preference, none if only a person can
    download it; .gz and .xz are decompressed, and .zip#member is that member of an archive.
    """

    path: str
    checksum: str
    page: str
    urls: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Where a person can download the file."""
        return self.urls[0] if self.urls else self.page


class _MirrorError(Exception):
    """A mirror failed; the message says why."""


def fetch(source: Source, folder: Path) -> Path:
    """The file of `source` below `folder`: downloaded if missing, verified in any case.

    An archive in the same folder is used before the network. Raises UserError if the file is
    truncated or altered, cannot be downloaded, or `folder` cannot be written.
    """
    path = folder / source.path
    if not path.exists():
        with writing(path):
            if not path.exists():  # another process may have downloaded it meanwhile
                _obtain(source, path)
    verify(source, path)
    return path


def verify(source: Source, path: Path) -> None:
    """UserError if the file at `path` is not the publisher's, byte for byte."""
    # Cached, as a sweep reads the same files in every run.
    if not (path.is_file() and _intact(path, source.checksum, cached_digest_of)):
        raise altered_file(path, source.address)


def altered_file(path: Path, address: str) -> UserError:
    """The error for a file with a wrong checksum or content."""
    return UserError(
        f"{path} is truncated or altered: delete it to start again, "
        f"or put the original from {address} there."
    )


def missing_file(path: Path, address: str, reason: str) -> Unavailable:
    """The error for a file that has to be downloaded by a person."""
    return Unavailable(
        f"{path.name} is missing in {path.parent} ({reason}): "
        f"put the file from {address} into that folder."
    )


def write_member(packed: IO[bytes] | None, path: Path) -> None:
    """Write an open file of a verified archive to `path`, atomically."""
    assert packed is not None
    with writing(path), packed:
        part = path.with_name(f"{path.name}.part")
        with part.open("wb") as out:
            shutil.copyfileobj(packed, out)
        part.replace(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold a lock on writing `path` across processes; UserError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            yield
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}): "
            "set data_dir or DPBENCH_DATA to a folder that can."
        ) from error


def _intact(path: Path, checksum: str, digest: Callable[[Path, str], str] = digest_of) -> bool:
    kind, _, expected = checksum.partition(":")
    return digest(path, kind) == expected


def _obtain(source: Source, path: Path) -> None:
    for url in source.urls:
        archive = path.with_name(Path(urlsplit(url).path).name)
        if archive.is_file():
            if not _install(archive, url, path, source.checksum):
                raise altered_file(archive, url)
            return
    reason = "its publisher does not let programs download it"
    for url in source.urls:
        try:
            return _download(url, path, source.checksum)
        except _MirrorError as error:
            reason = f"not downloaded from {url}, {error}"
    raise missing_file(path, source.address, reason)


def _download(url: str, path: Path, checksum: str) -> None:
    part = path.with_name(f"{path.name}{_packing(url, path)}.part")
    for _ in range(ATTEMPTS):
        leftover = part.exists()
        try:
            complete = _transfer(url, part)
        except NETWORK as error:
            raise _MirrorError(getattr(error, "reason", None) or error) from error
        if not complete:
            continue  # the next attempt resumes from here
        installed = _install(part, url, path, checksum)
        part.unlink()
        if installed:
            return
        if not leftover:
            raise _MirrorError("which has a different file than expected")
    raise _MirrorError("which keeps breaking off")


def _transfer(url: str, part: Path) -> bool:
    """Append the missing bytes of `url` to `part`; return whether the file is now complete."""
    start = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        response = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # nothing to append: complete or stale, which the checksum decides
            return True
        raise
    with response:
        if response.status != 206:  # the server ignored the range and sends the whole file
            start = 0
        length = response.headers.get("Content-Length")
        total = int(length) + start if length else None
        console = Console(stderr=True)
        bar = Progress(console=console, transient=True, disable=not console.is_terminal)
        with part.open("ab" if start else "wb") as out, bar:
            task = bar.add_task(part.name.removesuffix(".part"), total=total, completed=start)
            while chunk := response.read(CHUNK):
                out.write(chunk)
                bar.advance(task, len(chunk))
    return total is None or part.stat().st_size == total


def _install(file: Path, url: str, path: Path, checksum: str) -> bool:
    """Write the content of `file` to `path` atomically if it has the checksum; return whether it
    does."""
    new = path.with_name(f"{path.name}.new")
    try:
        with _opened(file, url, _packing(url, path)) as content, new.open("wb") as out:
            shutil.copyfileobj(content, out)
        if intact := _intact(new, checksum):
            new.replace(path)
        return intact
    except BROKEN_ARCHIVE:
        return False
    finally:
        new.unlink(missing_ok=True)


def _packing(url: str, path: Path) -> str:
    """The suffix of `url` that has to be unpacked to get `path`, or ""."""
    suffix = Path(urlsplit(url).path).suffix
    return suffix if suffix in (".zip", ".gz", ".xz") and suffix != path.suffix else ""


@contextmanager
def _opened(file: Path, url: str, packing: str) -> Iterator[IO[bytes]]:
    if packing == ".zip":
        with zipfile.ZipFile(file) as archive, archive.open(urlsplit(url).fragment) as member:
            yield member
    else:
        unpack: dict[str, Callable] = {".gz": gzip.open, ".xz": lzma.open}
        with unpack.get(packing, open)(file, "rb") as stream:
            yield stream
