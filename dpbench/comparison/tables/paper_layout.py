"""A table as a paper prints it: one grid of `ours [published]`, as LaTeX, Markdown and CSV."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from dpbench.comparison.tables.cells import Cell
from dpbench.comparison.tables.columns import Column
from dpbench.comparison.tables.edition import Edition
from dpbench.comparison.tables.grid import NO_VALUE, Grid, csv_text, number
from dpbench.comparison.tables.latex import escape
from dpbench.comparison.tables.page import Page
from dpbench.comparison.tables.privacy import RowPrivacy
from dpbench.comparison.tables.published import Published
from dpbench.comparison.tables.runs import Row
from dpbench.comparison.tables.table import Table
from dpbench.learning.metrics.registry import parse_name
from dpbench.privacy.statement import ACCOUNTANTS, UPPER_BOUNDS
from dpbench.runs.config.names import method_name, with_variant
from dpbench.runs.records.epsilon import NO_PROOF
from dpbench.system.validate import one_of

LONG = 40
"""Tables with more rows are longtables."""


@dataclass(frozen=True)
class PaperCell:
    """A number as text, the published one or "", and whether it is the best of its column."""

    ours: str
    published: str = ""
    best: bool = False

    def text(self, bold: str) -> str:
        """The cell; bold: the format of the best."""
        ours = bold.format(self.ours) if self.best else self.ours
        return f"{ours} [{self.published}]" if self.published else ours


@dataclass(frozen=True)
class PaperRow:
    """A row: its condition or "", the display name of its method, and a cell for each column."""

    condition: str
    method: str
    cells: tuple[PaperCell, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table to be printed: its caption, its columns, and its rows by condition."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]

    @property
    def head(self) -> tuple[str, ...]:
        """The heads of all columns; the first is of the conditions, where there are any."""
        return (*([""] if self.has_conditions else []), "method", *self.columns)

    @property
    def has_conditions(self) -> bool:
        """Whether rows are grouped."""
        return any(row.condition for row in self.rows)


def paper_files(table: Table, edition: Edition, columns: Sequence[str]) -> dict[str, bytes]:
    """The files by suffix. columns: the names of those to print, all if empty.

    Raises UserError for an unknown column.
    """
    known = {column.name: column for column in edition.columns}
    chosen = [known[one_of("columns", name, known)] for name in columns or known]
    paper = _paper_table(table, edition, chosen)
    cells = [cell for cell in table.cells if cell.column in chosen]
    texts = {"md": _markdown(paper), "csv": _csv(cells), "tex": _latex(paper)}
    return {f"paper.{suffix}": text.encode() for suffix, text in texts.items()}


def _paper_table(table: Table, edition: Edition, columns: Sequence[Column]) -> PaperTable:
    privacy = {stated.label: stated for stated in table.privacy}
    cells = {(cell.row, cell.column.name): cell for cell in table.cells}
    rows = []
    for condition, members in groupby(table.rows, key=lambda row: row.condition):
        group = [*members]
        ranked = [row.label for row in group if _is_ranked(row, edition, privacy.get(row.label))]
        found = {c: [cells.get((label, c.name)) for label in ranked] for c in columns}
        best = {c.name: _best(c, [cell for cell in of if cell]) for c, of in found.items()}
        for row in group:
            numbers = [
                _cell(cells.get((row.label, c.name)), best[c.name] if row.label in ranked else None)
                for c in columns
            ]
            shown = re.sub(r"\bepsilon (?=[\d.])", "ε = ", condition)
            name = with_variant(method_name(row.method), row.variant)
            rows.append(PaperRow(shown, name, (*numbers, *_epsilons(privacy.get(row.label)))))
    heads = (*map(_column_name, columns), *(f"ε, {ACCOUNTANTS[n].label}" for n in UPPER_BOUNDS))
    return PaperTable(edition.name, _caption(table, edition), heads, tuple(rows))


def _caption(table: Table, edition: Edition) -> str:
    counts = sorted({cell.n for cell in table.cells if cell.n})
    seeds = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else "0"
    printed = ", published values in brackets" if any(c.published for c in table.cells) else ""
    numbers = f"Mean ± {edition.file.spread} of {seeds} runs{printed}"
    return f"{table.title}. {numbers}; best private mean bold."


def _is_ranked(row: Row, edition: Edition, stated: RowPrivacy | None) -> bool:
    """Whether a row is a private method, with a proof where its privacy is stated."""
    unproven = stated is not None and NO_PROOF in stated.epsilons.values()
    return row.method != edition.file.baseline and not unproven


def _epsilons(stated: RowPrivacy | None) -> tuple[PaperCell, ...]:
    """The upper bounds of a row's epsilon, the printed one beside the first."""
    if stated is None:
        return ()
    first, *others = (stated.epsilons[name].replace("inf", "∞") for name in UPPER_BOUNDS)
    return PaperCell(first, stated.printed), *map(PaperCell, others)


def _column_name(column: Column) -> str:
    """`accuracy, male (%)`; the column's own name for a metric that is unknown."""
    parts = parse_name(column.metric.removeprefix("train_set/"))
    if not parts.is_known:
        return column.name
    training = ["training"] if column.metric.startswith("train_set/") else []
    words = ", ".join(filter(None, [parts.metric.label, parts.group, *training]))
    return f"{words} (%)" if column.factor == 100 else words


def _best(column: Column, cells: Sequence[Cell]) -> str | None:
    """The best mean as text, which all that print the same share; None if there is no choice."""
    means = [cell.ours for cell in cells if math.isfinite(cell.ours)]
    if len(means) < 2:
        return None
    return number(max(means) if column.better == "higher" else min(means), column.digits)


def _cell(cell: Cell | None, best: str | None) -> PaperCell:
    if cell is None:
        return PaperCell(NO_VALUE)
    digits = cell.column.digits
    mean = number(cell.ours, digits) if cell.n else NO_VALUE
    spread = "" if math.isnan(cell.spread) else f" ± {number(cell.spread, digits)}"
    return PaperCell(f"{mean}{spread}", _published(cell.published), mean == best)


def _published(printed: Published | None) -> str:
    return printed.value if printed else ""


def _markdown(table: PaperTable) -> str:
    """A table under its caption; a condition stands in the first row of its group."""
    rows, before = [], None
    for row in table.rows:
        first = [row.condition if row.condition != before else ""] if table.has_conditions else []
        rows.append((*first, row.method, *(cell.text("**{}**") for cell in row.cells)))
        before = row.condition
    return Page("", [table.caption, Grid("", table.head, tuple(rows))]).markdown


def _csv(cells: Sequence[Cell]) -> str:
    """One line per row of the table with plain numbers: mean, spread, n and published value."""
    names = list(dict.fromkeys(cell.column.name for cell in cells))
    by_row: dict[tuple[str, str], dict[str, Cell]] = {}
    for cell in cells:
        row = (cell.condition, cell.row.removeprefix(f"{cell.condition}, "))
        by_row.setdefault(row, {})[cell.column.name] = cell
    parts = ("", " spread", " n", " published")
    head = ("condition", "method", *(f"{name}{part}" for name in names for part in parts))
    lines = [
        (*row, *(text for name in names for text in _numbers(found.get(name))))
        for row, found in by_row.items()
    ]
    return csv_text(head, lines)


def _numbers(cell: Cell | None) -> tuple[str, ...]:
    if cell is None:
        return ("",) * 4
    ours, spread = (f"{value:.6g}" for value in (cell.ours, cell.spread))
    return ours, spread, str(cell.n), _published(cell.published)


def _latex(table: PaperTable) -> str:
    """One tabular with the rules of booktabs; a longtable if it is long."""
    long = len(table.rows) > LONG
    kinds = "l" * (len(table.head) - len(table.columns)) + "r" * len(table.columns)
    caption = rf"\caption{{{escape(table.caption)}}}"
    label = rf"\label{{tab:{table.name}}}"
    top = [r"\toprule", _latex_line([escape(text) for text in table.head]), r"\midrule"]
    body = [*_latex_rows(table, long), r"\bottomrule"]
    if long:
        opening = [rf"\begin{{longtable}}{{{kinds}}}", rf"{caption}{label}\\", *top, r"\endhead"]
        return "\n".join([r"{\footnotesize", *opening, *body, r"\end{longtable}}", ""])
    opening = [r"\begin{table}", r"\centering\footnotesize", caption, label]
    opening.append(rf"\begin{{tabular}}{{{kinds}}}")
    return "\n".join([*opening, *top, *body, r"\end{tabular}", r"\end{table}", ""])


def _latex_rows(table: PaperTable, long: bool) -> Iterator[str]:
    """The rows, each group under its condition, which spans its rows unless pages may break."""
    for place, (condition, group) in enumerate(groupby(table.rows, lambda row: row.condition)):
        rows = list(group)
        name = escape(condition)
        first = name if long else rf"\multirow{{{len(rows)}}}{{*}}{{{name}}}"
        if place:
            yield r"\midrule"
        for line, row in enumerate(rows):
            cells = [_latex_cell(cell) for cell in row.cells]
            before = ["" if line else first] if table.has_conditions else []
            yield _latex_line([*before, escape(row.method), *cells])


def _latex_cell(cell: PaperCell) -> str:
    ours, published = escape(cell.ours), escape(cell.published)
    return PaperCell(ours, published, cell.best).text(r"\textbf{{{}}}")


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
