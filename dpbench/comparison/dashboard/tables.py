"""The papers' tables for the page: our numbers beside the published ones, and tables not run."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from dpbench.comparison.dashboard.run_row import TableRow
from dpbench.comparison.tables.data import CellData, TableData, read_json
from dpbench.comparison.tables.published import read_published, without_comments
from dpbench.comparison.tables.verdict_words import NOT_RUN
from dpbench.runs.config.search_path import own_file_of
from dpbench.runs.config.yaml_files import read_settings
from dpbench.runs.records.folder import TABLES
from dpbench.runs.records.reading import Unreadable
from dpbench.system.errors import UserError
from dpbench.system.files import files_in
from dpbench.system.grouping import grouped
from dpbench.system.paths import benchmarks_folder

OTHER_COLUMNS = ("method", "column", "value", "spread", "delta")


def pages(folder: Path) -> tuple[dict[str, TableData], list[Unreadable]]:
    """The tables, figures and other pages of `tables/*.json`, and of those beside a page in the
    folder itself, by the names of their files; and the files in `tables` that are damaged."""
    found, unreadable = {}, []
    for path in files_in(folder / TABLES, "*.json"):
        one = read_json(path, TableData)
        if isinstance(one, Unreadable):
            unreadable.append(Unreadable(f"{TABLES}/{path.name}", one.reason))
        else:
            found[path.stem] = one
    for path in files_in(folder, "*.md"):
        beside = read_json(path.with_suffix(".json"), TableData)
        if isinstance(beside, TableData):
            found[path.stem] = beside
    return found, unreadable


def places(tables: Mapping[str, TableData]) -> dict[str, list[TableRow]]:
    """The rows of tables by the digest of a run."""
    return grouped(
        (digest, TableRow(stem, row))
        for stem, table in tables.items()
        for row in table.rows
        for digest in row.records
    )


def tables(pages: Mapping[str, TableData]) -> dict[str, TableData]:
    """Those of cells, then those with printed numbers that were not run, by name."""
    compared = {name: page for name, page in pages.items() if page.cells}
    return compared | {name: table for name, table in _printed_tables() if name not in pages}


def _printed_tables() -> Iterator[tuple[str, TableData]]:
    for path in sorted(benchmarks_folder().glob("*/table*.csv")):
        name = f"{path.parent.name}_{path.stem}"
        if file := own_file_of("table", name):
            try:
                cells = _printed_cells(path)
            except UserError:
                continue  # a file of another format
            title = read_settings(file)["table"]["title"]
            yield name, TableData(title, f"dpbench reproduce {name}", cells=cells)


def _printed_cells(path: Path) -> list[CellData]:
    head = next(csv.reader(without_comments(path)))
    published = read_published(path, [name for name in head if name not in OTHER_COLUMNS])
    return [
        CellData(
            row=row,
            column=column,
            n=0,
            published=number.value,
            published_spread=number.spread or "",
            verdict=NOT_RUN,
        )
        for (row, column), number in published.items()
    ]
