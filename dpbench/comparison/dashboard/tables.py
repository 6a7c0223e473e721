"""The papers' tables as the page draws them: our numbers beside the printed ones, rounded alike."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dpbench.comparison.compare.side import ELSEWHERE
from dpbench.comparison.dashboard.documents import Card, card
from dpbench.comparison.dashboard.run_row import TableRow
from dpbench.comparison.dashboard.values import DASH
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.data import CellData, TableData, read_json
from dpbench.comparison.tables.published import read_published, without_comments
from dpbench.comparison.tables.verdict import (
    DIFFERS,
    NOT_RUN,
    NOTHING_PUBLISHED,
    REPRODUCED,
    UNDECIDED,
    counted_verdict,
    look_of,
)
from dpbench.runs.config.search_path import own_file_of
from dpbench.runs.config.yaml_files import read_settings
from dpbench.runs.records.folder import TABLES
from dpbench.runs.records.reading import Unreadable
from dpbench.system.errors import UserError
from dpbench.system.files import files_in
from dpbench.system.grouping import grouped
from dpbench.system.paths import benchmarks_folder

OTHER_COLUMNS = ("method", "column", "value", "spread", "delta")

DECIMALS = 3
"""Of our numbers where nothing was printed."""


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
        (digest, TableRow(stem, row, table.searches))
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


def table_view(table: TableData, names: Mapping[str, str]) -> Card:
    """A table as the page's card. names: of methods, for display."""
    elsewhere = {row_name(r.condition, r.method) for r in table.rows if r.tuning.flaw == ELSEWHERE}
    shown = [cell for cell in table.cells if cell.row not in elsewhere]
    cells = {(cell.row, cell.column): _cell(cell) for cell in shown}
    columns = dict.fromkeys(cell.column for cell in shown)
    verdicts = Counter(cell.verdict for cell in shown)
    return card(
        table.title,
        command=table.command,
        run=NOT_RUN not in verdicts,
        tally=[
            (n, look_of(v).kind, counted_verdict(n, v))
            for v, n in verdicts.items()
            if v != NOTHING_PUBLISHED
        ],
        claims=[
            (*_marked(c.verdict), f"{c.statement} ({c.reason})" if c.reason else c.statement)
            for c in table.claims
        ],
        head=["", *columns],
        rows=[
            [
                {"head": names.get(row, row)},
                *(cells.get((row, column), {"text": ""}) for column in columns),
            ]
            for row in dict.fromkeys(cell.row for cell in shown)
        ],
    )


def reproduced(tables: Iterable[TableData]) -> tuple[int, int]:
    """How many of how many judged numbers of all tables are reproduced."""
    verdicts = Counter(cell.verdict for table in tables for cell in table.cells)
    done, *others = (verdicts[verdict] for verdict in (REPRODUCED, DIFFERS, UNDECIDED))
    return done, done + sum(others)


def _marked(verdict: str) -> tuple[str, str]:
    look = look_of(verdict)
    return look.kind, f"{look.sign} {verdict}"


def _cell(cell: CellData) -> dict:
    kind, verdict = _marked(cell.verdict)
    published = _pair(cell.published, cell.published_spread)
    lines = [
        ("ours", _ours(cell)),
        ("theirs", f"[{published}]" if published else ""),
        ("verdict", "" if cell.verdict == NOTHING_PUBLISHED else verdict),
    ]
    return {"text": "", "kind": f"cell {kind}", "title": cell.verdict, "lines": lines}


def _ours(cell: CellData) -> str:
    """Our value ± spread (n), in the decimals of the printed one; where there is none, why."""
    if not cell.n:
        return DASH
    if cell.ours is None:
        return f"not finite ({cell.n})"
    digits = len(cell.published.partition(".")[2]) if cell.published else DECIMALS
    spread = "" if cell.spread is None else f"{cell.spread:.{digits}f}"
    return f"{_pair(f'{cell.ours:.{digits}f}', spread)} ({cell.n})"


def _pair(value: str, spread: str) -> str:
    return f"{value} ± {spread}" if spread else value
