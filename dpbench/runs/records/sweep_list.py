"""The runs of a sweep, as a file that names their records: `sweeps/NAME.txt` in a results folder.
One folder keeps the runs of many sweeps, which may share some of them."""

from collections.abc import Iterable
from pathlib import Path

from dpbench.runs.records.folder import SWEEPS
from dpbench.runs.records.reading import required, text_of
from dpbench.system.errors import UserError, nearest
from dpbench.system.files import files_in, write_atomically


def write_list(folder: Path, name: str, digests: Iterable[str]) -> None:
    """Keep the digests of a sweep's runs, those that have no record yet included."""
    path, text = _path(folder, name), "".join(f"{digest}\n" for digest in digests).encode()
    if not path.is_file() or path.read_bytes() != text:
        write_atomically(path, text)


def read_list(folder: Path, name: str) -> set[str]:
    """The digests of a sweep's runs; UserError for a name of no sweep, or an unreadable file."""
    known = [path.stem for path in files_in(folder / SWEEPS, "*.txt")]
    if name not in known:
        raise UserError(f"{folder} has no sweep {name}: {nearest(name, known)}")
    path = _path(folder, name)
    text = required(text_of(path), path, ": run the sweep again, which writes it anew.")
    return {*text.split()}


def sweeps_of(folder: Path, digest: str) -> list[str]:
    """The names of the sweeps that a run belongs to."""
    texts = {path.stem: text_of(path) for path in files_in(folder / SWEEPS, "*.txt")}
    return [name for name, text in texts.items() if isinstance(text, str) and digest in text]


def _path(folder: Path, name: str) -> Path:
    return folder / SWEEPS / f"{name}.txt"
