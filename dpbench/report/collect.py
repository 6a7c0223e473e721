"""The records of a results folder, and what lies there that is none."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import UserError
from dpbench.reading import Unreadable, parse, read, text_of
from dpbench.results import Record


@dataclass(frozen=True)
class Found:
    """A record, and the file it comes from, as a path within the results folder."""

    record: Record
    source: str


@dataclass(frozen=True)
class Collected:
    """The records by digest, each once, and what could not be read."""

    found: tuple[Found, ...]
    unreadable: tuple[Unreadable, ...]


def collect(folder: Path) -> Collected:
    """What `runs/*.json` and `tables/*.records.jsonl` hold; where both have a run, the former.

    Raises UserError where there is no such folder, or no record in it.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: set results_dir to where the records are.")
    read = [*_runs(folder), *_tables(folder)]
    by_digest: dict[str, Found] = {}
    for one in read:
        if isinstance(one, Found):
            by_digest.setdefault(one.record.digest, one)
    unreadable = tuple(one for one in read if isinstance(one, Unreadable))
    if not by_digest:
        raise UserError(_nothing(folder, unreadable))
    return Collected(tuple(by_digest[key] for key in sorted(by_digest)), unreadable)


def _nothing(folder: Path, unreadable: tuple[Unreadable, ...]) -> str:
    broken = f" but {_first(unreadable)}" if unreadable else ""
    return (
        f"there is no record in {folder}{broken}: make one with dpbench run, or set results_dir "
        "to where the records are."
    )


def _first(unreadable: tuple[Unreadable, ...]) -> str:
    return f"{len(unreadable)} that cannot be read, as {unreadable[0].source}"


def _runs(folder: Path) -> Iterator[Found | Unreadable]:
    for path in sorted((folder / "runs").glob("*.json")):
        yield _found(read(path), f"runs/{path.name}")


def _tables(folder: Path) -> Iterator[Found | Unreadable]:
    for path in sorted((folder / "tables").glob("*.records.jsonl")):
        source, text = f"tables/{path.name}", text_of(path)
        if isinstance(text, Unreadable):
            yield _found(text, source)
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield _found(parse(line, source), f"{source}, line {number}")


def _found(read: Record | Unreadable, source: str) -> Found | Unreadable:
    return Found(read, source) if isinstance(read, Record) else Unreadable(source, read.why)
