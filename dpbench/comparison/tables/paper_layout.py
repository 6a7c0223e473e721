"""A table as a paper prints it: one grid of `ours [published]`, as LaTeX, Markdown and CSV."""

import math
import re
from collections.abc import Sequence
from itertools import groupby

from dpbench.comparison.tables.cells import TableCell
from dpbench.comparison.tables.edition import Edition, TableColumn
from dpbench.comparison.tables.grid import NO_VALUE, Grid, csv_text, number, range_text, with_spread
from dpbench.comparison.tables.page import Page, tabular
from dpbench.comparison.tables.privacy import RowPrivacy
from dpbench.comparison.tables.runs import Row
from dpbench.comparison.tables.table import ResultTable
from dpbench.learning.metrics.registry import parse_name
from dpbench.privacy.statement import ACCOUNTANTS, UPPER_BOUNDS
from dpbench.runs.config.search_path import method_name, with_variant
from dpbench.runs.records.epsilon import NO_PROOF
from dpbench.system.grouping import grouped
from dpbench.system.validate import one_of


def paper_files(table: ResultTable, edition: Edition, columns: Sequence[str]) -> dict[str, bytes]:
    """The files by suffix. columns: the names of those to print, all if empty.

    Raises UserError for an unknown column.
    """
    known = {column.name: column for column in edition.columns}
    chosen = [known[one_of("columns", name, known)] for name in columns or known]
    caption, grouped = _caption(table, edition), any(row.condition for row in table.rows)
    grid = _grid(table, edition, chosen, grouped)
    texts = {
        "md": Page("", [caption, grid]).markdown,
        "csv": _csv([cell for cell in table.cells if cell.column in chosen]),
        "tex": tabular(caption, grid, edition.name, grouped) + "\n",
    }
    return {f"paper.{suffix}": text.encode() for suffix, text in texts.items()}


def _grid(
    table: ResultTable, edition: Edition, columns: Sequence[TableColumn], grouped: bool
) -> Grid:
    """A row for each method, with the best mean of each column bold; grouped: under its condition,
    which stands in the first row of its group."""
    privacy = {stated.label: stated for stated in table.privacy}
    cells = {(cell.row, cell.column.name): cell for cell in table.cells}
    rows = []
    for condition, members in groupby(table.rows, key=lambda row: row.condition):
        group = [*members]
        ranked = [row.label for row in group if _is_ranked(row, edition, privacy.get(row.label))]
        found = {c: [cells.get((label, c.name)) for label in ranked] for c in columns}
        best = {c.name: _best(c, [cell for cell in of if cell]) for c, of in found.items()}
        name = re.sub(r"\bepsilon (?=[\d.])", "ε = ", condition)
        for row in group:
            numbers = [
                _cell(cells.get((row.label, c.name)), best[c.name] if row.label in ranked else None)
                for c in columns
            ]
            first = [name if row is group[0] else ""] if grouped else []
            method = with_variant(method_name(row.method), row.variant)
            rows.append((*first, method, *numbers, *_epsilons(privacy.get(row.label))))
    heads = (*map(_column_name, columns), *(f"ε, {ACCOUNTANTS[n].label}" for n in UPPER_BOUNDS))
    return Grid("", (*([""] if grouped else []), "method", *heads), tuple(rows))


def _caption(table: ResultTable, edition: Edition) -> str:
    counts = sorted({cell.n for cell in table.cells if cell.n})
    seeds = range_text(counts[0], counts[-1]) if counts else "0"
    printed = ", published values in brackets" if any(c.published for c in table.cells) else ""
    numbers = f"Mean ± {edition.table.spread} of {seeds} runs{printed}"
    return f"{table.title}. {numbers}; best private mean bold."


def _is_ranked(row: Row, edition: Edition, stated: RowPrivacy | None) -> bool:
    unproven = stated is not None and NO_PROOF in stated.epsilons.values()
    return row.method != edition.table.baseline and not unproven


def _epsilons(stated: RowPrivacy | None) -> tuple[str, ...]:
    if stated is None:
        return ()
    first, *others = (stated.epsilons[name].replace("inf", "∞") for name in UPPER_BOUNDS)
    return _beside(first, stated.printed), *others


def _column_name(column: TableColumn) -> str:
    """`accuracy, male (%)`; the column's own name for a metric that is unknown."""
    parts = parse_name(column.metric.removeprefix("train_set/"))
    if not parts.is_known:
        return column.name
    training = ["training"] if column.metric.startswith("train_set/") else []
    words = ", ".join(filter(None, [parts.metric.label, parts.group, *training]))
    return f"{words} (%)" if column.factor == 100 else words


def _best(column: TableColumn, cells: Sequence[TableCell]) -> str | None:
    """The best mean as text, which all that print the same share; None if there is no choice."""
    means = [cell.ours for cell in cells if math.isfinite(cell.ours)]
    if len(means) < 2:
        return None
    return number(max(means) if column.better == "higher" else min(means), column.digits)


def _cell(cell: TableCell | None, best: str | None) -> str:
    """`**80.5 ± 0.4** [80.3]`: our mean, bold if it is the best, and the published one."""
    if cell is None:
        return NO_VALUE
    digits = cell.column.digits
    ours = with_spread(cell.ours, cell.spread, digits) if cell.n else NO_VALUE
    is_best = cell.n and number(cell.ours, digits) == best
    return _beside(f"**{ours}**" if is_best else ours, cell.printed)


def _beside(ours: str, published: str) -> str:
    return f"{ours} [{published}]" if published else ours


def _csv(cells: Sequence[TableCell]) -> str:
    names = list(dict.fromkeys(cell.column.name for cell in cells))
    by_row = grouped(((cell.condition, cell.method), (cell.column.name, cell)) for cell in cells)
    parts = ("", " spread", " n", " published")
    head = ("condition", "method", *(f"{name}{part}" for name in names for part in parts))
    lines = [
        (*row, *(text for name in names for text in _numbers(dict(found).get(name))))
        for row, found in by_row.items()
    ]
    return csv_text(head, lines)


def _numbers(cell: TableCell | None) -> tuple[str, ...]:
    if cell is None:
        return ("",) * 4
    ours, spread = (f"{value:.6g}" for value in (cell.ours, cell.spread))
    return ours, spread, str(cell.n), cell.printed
