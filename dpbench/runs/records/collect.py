"""Reads all records of a results folder, and reports the files that cannot be read."""

import gc
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dpbench.runs.records.digest import digest
from dpbench.runs.records.folder import RUNS, TABLES
from dpbench.runs.records.reading import Unreadable, parse, read, text_of
from dpbench.runs.records.record import Record
from dpbench.system.errors import MALFORMED_JSON, UserError, print_message
from dpbench.system.files import files_in

RECORDS = "records.jsonl"
"""The suffix of a table's file of records."""

CONFIG = '"config": '
"""What is before the configuration in the text of a record."""


def collect(folder: Path) -> Iterator[Record | Unreadable]:
    """The records in `runs/*.json`, then those in `tables/*.records.jsonl`, each run once: one
    without its seed is of a known run if that has the same results on test examples. UserError
    where there is no such folder."""
    known: set[object] = set()
    for entry in collect_all(folder):
        if isinstance(entry, Unreadable):
            yield entry
        elif (name := _name(entry)) not in known:
            known |= {name, _results(entry)}
            yield entry


def check_results(folder: Path) -> None:
    """UserError where there is no folder."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: name the results_dir of the runs.")


def collect_all(folder: Path) -> Iterator[Record | Unreadable]:
    """The same, each run as often as it is there."""
    check_results(folder)
    yield from (read(path, f"{RUNS}/{path.name}") for path in files_in(folder / RUNS, "*.json"))
    for path in files_in(folder / TABLES, f"*.{RECORDS}"):
        yield from records_in(path)


class TableRecords:
    """The records in tables' files by the digest of their run; a file is only read while the runs
    asked for are in none before it."""

    def __init__(self, paths: Iterable[Path]):
        self._unread = iter(paths)
        self._lines: dict[str, str] = {}

    def get(self, name: str) -> Record | None:
        """The record of the run of that digest; None if it is in no file, or not valid."""
        while name not in self._lines and (path := next(self._unread, None)):
            if isinstance(text := text_of(path), str):
                self._lines = {_digest_in(line): line for line in text.split("\n")} | self._lines
        entry = parse(self._lines.get(name, ""), name)
        return entry if isinstance(entry, Record) and entry.digest == name else None


def _digest_in(line: str) -> str:
    try:
        # Parsed in a tenth of the time of the whole record.
        return digest(json.JSONDecoder().raw_decode(line, line.index(CONFIG) + len(CONFIG))[0])
    except MALFORMED_JSON:
        return ""


def readable(folder: Path) -> tuple[list[Record], list[Unreadable]]:
    """The records of a folder, and what could not be read; UserError where there is no record."""
    was_enabled = gc.isenabled()
    gc.disable()  # which takes a third of the time, and finds nothing in records
    try:
        entries = list(collect(folder))
    finally:
        if was_enabled:
            gc.enable()
    records = [entry for entry in entries if isinstance(entry, Record)]
    unreadable = [entry for entry in entries if isinstance(entry, Unreadable)]
    if not records:
        raise no_records(folder, unreadable)
    return records, unreadable


def readable_records(folder: Path) -> list[Record]:
    """The readable records of a folder; a message names each of the others."""
    records, unreadable = readable(folder)
    name_left_out(unreadable)
    return records


def name_left_out(unreadable: Iterable[Unreadable]) -> None:
    """A message on each file, or line of one, that could not be read."""
    for entry in unreadable:
        print_message(f"left out {entry.source}, which {entry.reason}.")


def no_records(folder: Path, unreadable: Sequence[Unreadable]) -> UserError:
    """The error for a folder without any record, such as the one of runs in a results folder."""
    if folder.name == RUNS and files_in(folder, "*.json"):
        return UserError(f"{folder} is inside a results folder: name {folder.parent} instead.")
    broken = ""
    if unreadable:
        broken = f" but {len(unreadable)} that cannot be read, such as {unreadable[0].source}"
    return UserError(
        f"there is no record in {folder}{broken}: make one with dpbench run, or name the "
        "results_dir of the runs."
    )


def _name(record: Record) -> object:
    """By what a record is known to be of the same run as another."""
    return _results(record) if record.config.get("seed") is None else record.digest


def _results(record: Record) -> object:
    """The results on test examples, which no two runs of a method share; without any, what tells
    the record from all others."""
    on_test = frozenset(item for item in record.metrics.items() if item[0].startswith("test/"))
    return hash((record.config["choices"].get("method"), on_test)) if on_test else record.seed


def records_in(path: Path) -> Iterator[Record | Unreadable]:
    """The records of a table's file, `tables/NAME.records.jsonl`, one on each line."""
    source, text = f"{TABLES}/{path.name}", text_of(path)
    if isinstance(text, Unreadable):
        yield text._replace(source=source)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield parse(line, f"{source}, line {number}")


def readable_records_in(path: Path) -> list[Record]:
    """The readable records of a table's file; none of a file that cannot be read."""
    return [entry for entry in records_in(path) if isinstance(entry, Record)]
