"""The records of a results folder, and what lies there that is none."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from dpbench.errors import UserError
from dpbench.records.reading import Unreadable, parse, read, text_of
from dpbench.records.record import Record


@dataclass(frozen=True)
class StoredRecord:
    """A record, and the file it comes from, as a path within the results folder."""

    record: Record
    source: str

    @cached_property
    def digest(self) -> str:
        return self.record.digest


def collect(folder: Path) -> Iterator[StoredRecord | Unreadable]:
    """What `runs/*.json` and `tables/*.records.jsonl` hold, one after the other, each record once.

    Where both have a run, the former counts. Raises UserError where there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: set results_dir to where the records are.")
    there: set[str] = set()
    for one in chain(_runs(folder), _tables(folder)):
        if isinstance(one, Unreadable):
            yield one
        elif one.digest not in there:
            there.add(one.digest)
            yield one


def no_records(folder: Path, unreadable: Sequence[Unreadable]) -> UserError:
    """What to say of a folder without any record."""
    broken = ""
    if unreadable:
        broken = f" but {len(unreadable)} that cannot be read, as {unreadable[0].source}"
    return UserError(
        f"there is no record in {folder}{broken}: make one with dpbench run, or set results_dir "
        "to where the records are."
    )


def _runs(folder: Path) -> Iterator[StoredRecord | Unreadable]:
    for path in sorted((folder / "runs").glob("*.json")):
        yield _found(read(path), f"runs/{path.name}")


def _tables(folder: Path) -> Iterator[StoredRecord | Unreadable]:
    for path in sorted((folder / "tables").glob("*.records.jsonl")):
        source, text = f"tables/{path.name}", text_of(path)
        if isinstance(text, Unreadable):
            yield _found(text, source)
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield _found(parse(line, source), f"{source}, line {number}")


def _found(read: Record | Unreadable, source: str) -> StoredRecord | Unreadable:
    return StoredRecord(read, source) if isinstance(read, Record) else Unreadable(source, read.why)
