"""The papers' tables for the page: our numbers beside the published ones, and tables not run."""

import csv
import io
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dpbench.comparison.dashboard.documents import text_in
from dpbench.comparison.dashboard.run_row import Place
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.data import TableData, read_table_json
from dpbench.comparison.tables.header import HEAD
from dpbench.comparison.tables.page import command_of
from dpbench.comparison.tables.published import read_published, without_comments
from dpbench.comparison.tables.verdict_words import NOT_RUN
from dpbench.runs.config.search_path import own_file_of
from dpbench.runs.records.folder import TABLES
from dpbench.runs.records.reading import Unreadable, text_of
from dpbench.system.errors import UserError
from dpbench.system.files import files_in
from dpbench.system.grouping import grouped
from dpbench.system.paths import benchmarks_folder

OTHER_COLUMNS = ("method", "column", "value", "spread", "delta")


def tables(folder: Path) -> tuple[list[dict], list[Unreadable]]:
    """The tables in `tables/*.csv`, then the published ones that were not run."""
    ours, unreadable = [], []
    for path in files_in(folder / TABLES, "*.csv"):
        table = _compared_table(path)
        if isinstance(table, Unreadable):
            unreadable.append(table)
        elif table:
            ours.append(table)
    compared = {table["name"] for table in ours}
    return ours + [t for t in _published_tables() if t["name"] not in compared], unreadable


def typed_tables(folder: Path) -> dict[str, TableData]:
    """The tables of `tables/*.json` by the names of their files."""
    texts = ((path.stem, text_in(path)) for path in files_in(folder / TABLES, "*.json"))
    return {stem: table for stem, text in texts if (table := read_table_json(text))}


def places(folder: Path) -> dict[str, list[Place]]:
    """The rows of tables, as `tables/*.json` say, by the digest of a run."""
    return grouped(
        (digest, Place(stem, row))
        for stem, table in typed_tables(folder).items()
        for row in table.rows
        for digest in row.records
    )


def _compared_table(path: Path) -> dict | Unreadable | None:
    """A table; None if the CSV file has something else (a figure's points, a search's trials)."""
    source, text = f"tables/{path.name}", text_of(path)
    if isinstance(text, Unreadable):
        return Unreadable(source, text.reason)
    try:
        reader = _lines(text)
        if not set(HEAD) <= set(reader.fieldnames or ()):
            return None
        lines = list(reader)
    except csv.Error as error:
        return Unreadable(source, f"cannot be read: {error}")
    if any(None in line or None in line.values() for line in lines):
        return Unreadable(source, "is damaged: a line has more or fewer fields than the header")
    cells = [_cell(line) for line in lines]
    page = text_in(path.with_suffix(".md"))
    title = page.split("\n", 1)[0].removeprefix("# ") or path.stem
    words = command_of(page)
    command = shlex.join(["dpbench", "reproduce", *words]) if words else None
    claims = _claims(path.with_suffix(".claims.csv"))
    return _table(path.stem, title, command, cells, claims)


def _lines(text: str) -> csv.DictReader:
    return csv.DictReader(io.StringIO(text, newline=""))


def _claims(path: Path) -> list[dict]:
    """The claims of a table with their verdicts, if there are any."""
    try:
        lines = list(_lines(text_in(path)))
        keys = {"statement": "statement", "verdict": "claim_verdict", "reason": "claim_reason"}
        found = {one["claim"]: {k: one[name] for k, name in keys.items()} for one in lines}
    except (csv.Error, KeyError):
        return []
    return [*found.values()]


def _cell(line: dict[str, str]) -> dict:
    fields = ("column", "ours", "spread", "n", "published", "published_spread", "verdict")
    return {
        "row": row_name(line.get("condition", ""), line["method"]),
        **{k: line[k] for k in fields},
    }


def _table(
    name: str, title: str, command: str | None, cells: list[dict], claims: list[dict]
) -> dict:
    return {
        "name": name,
        "title": title,
        "command": command,
        "claims": claims,
        "rows": list(dict.fromkeys(cell["row"] for cell in cells)),
        "columns": list(dict.fromkeys(cell["column"] for cell in cells)),
        "cells": cells,
        "verdicts": dict(Counter(cell["verdict"] for cell in cells)),
    }


def _published_tables() -> Iterator[dict]:
    for path in sorted(benchmarks_folder().glob("*/table*.csv")):
        name = f"{path.parent.name}_{path.stem}"
        if own_file_of("table", name):
            try:
                command = f"dpbench reproduce {name}"
                yield _table(name, _published_title(path), command, _published_cells(path), [])
            except UserError:
                continue  # a file of another format


def _published_cells(path: Path) -> list[dict]:
    head = next(csv.reader(without_comments(path)))
    published = read_published(path, [name for name in head if name not in OTHER_COLUMNS])
    empty = dict.fromkeys(("ours", "spread", "n"), "")
    return [
        {
            "row": row,
            "column": column,
            **empty,
            "published": number.value,
            "published_spread": number.spread or "",
            "verdict": NOT_RUN,
        }
        for (row, column), number in published.items()
    ]


def _published_title(path: Path) -> str:
    """The title of the table, from the comments in the file."""
    lines = [line.lstrip("# ") for line in path.read_text(encoding="utf-8").splitlines()]
    return next((line.rstrip(".") for line in lines if line.startswith("Table")), path.stem)
