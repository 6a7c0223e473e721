"""The cells of a table: our mean, its spread, how many runs, and the published number."""

import math
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from dpbench.comparison.tables.edition import STANDARD_ERROR, Edition, TableColumn
from dpbench.comparison.tables.grid import NO_VALUE, signed, with_spread
from dpbench.comparison.tables.published import Published, PublishedTable
from dpbench.comparison.tables.runs import Row
from dpbench.comparison.tables.verdict import IMPOSSIBLE, MISSING, Distance, reproduces
from dpbench.learning.metrics.derived import is_paired
from dpbench.learning.metrics.students_t import standard_deviation


@dataclass(frozen=True)
class TableCell:
    """One number of a table, in the column's unit.

    ours: the mean of n runs, NaN if any of them diverged; spread: the standard error or deviation,
    as specified, NaN with fewer than two runs; distance: from the printed number.
    """

    condition: str
    row: str
    column: TableColumn
    ours: float
    spread: float
    n: int
    published: Published | None
    verdict: str
    distance: Distance | None = None

    @property
    def method(self) -> str:
        return self.row.removeprefix(f"{self.condition}, ")

    @property
    def printed(self) -> str:
        """The printed number, digit for digit; "" for none."""
        return self.published.value if self.published else ""

    @property
    def printed_spread(self) -> str:
        """The number after its ±; "" for none."""
        return (self.published and self.published.spread) or ""

    @property
    def difference(self) -> float:
        """Ours - published, or NaN."""
        return self.ours - float(self.published.value) if self.published else math.nan

    @property
    def text(self) -> str:
        """`80.5 ± 0.4 (5)`: mean, spread if there is one, and number of runs."""
        if self.n == 0:
            return self.verdict
        return f"{with_spread(self.ours, self.spread, self.column.digits)} ({self.n})"


COMPARED: dict[str, Callable[[TableCell], str]] = {
    "method": lambda cell: cell.row,
    "column": lambda cell: cell.column.name,
    "ours": lambda cell: cell.text,
    "published": lambda cell: cell.published.text if cell.published else NO_VALUE,
    "difference": lambda cell: (
        signed(cell.difference, cell.column.digits) if cell.published and cell.n else NO_VALUE
    ),
    "verdict": lambda cell: cell.verdict,
}
"""What is said of a cell beside its printed number, by the head of a column."""


def cells_of(
    edition: Edition, rows: Sequence[Row], published: PublishedTable, impossible: Collection[str]
) -> list[TableCell]:
    """All cells, row by row; the baseline has none in columns that are relative to it."""
    return [
        _cell(edition, row, column, published, impossible)
        for row in rows
        for column in edition.columns
        if not (row.method == edition.table.baseline and is_paired(column.metric))
    ]


def _cell(
    edition: Edition,
    row: Row,
    column: TableColumn,
    published: PublishedTable,
    impossible: Collection[str],
) -> TableCell:
    printed = published.get((row.name, column.printed))
    values = [column.factor * value for value in row.values(column.metric).values()]
    if not values:
        reason = IMPOSSIBLE if row.name in impossible else MISSING
        return TableCell(row.condition, row.label, column, math.nan, math.nan, 0, printed, reason)
    mean = statistics.fmean(values)
    spread = standard_deviation(values)
    if edition.table.spread == STANDARD_ERROR:
        spread /= math.sqrt(len(values))
    result = reproduces(edition, column, values, printed)
    return TableCell(row.condition, row.label, column, mean, spread, len(values), printed, *result)
