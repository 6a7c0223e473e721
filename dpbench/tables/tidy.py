"""A table as tidy CSV, for other programs."""

import csv
import io

from dpbench.tables.cells import Cell
from dpbench.tables.table import Table

HEAD = (
    "method",
    "column",
    "ours",
    "spread",
    "n",
    "published",
    "published_spread",
    "difference",
    "verdict",
)


def to_csv(table: Table) -> str:
    """One line per cell, in the unit of its column and to six digits; NaN is `nan`.

    Where the table has conditions, the first column says which.
    """
    varied = any(cell.condition for cell in table.cells)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("condition",) * varied + HEAD)
    writer.writerows((cell.condition,) * varied + _line(cell) for cell in table.cells)
    return text.getvalue()


def _line(cell: Cell) -> tuple[str, ...]:
    printed = cell.published
    return (
        cell.row.removeprefix(f"{cell.condition}, "),
        cell.column.name,
        _text(cell.ours),
        _text(cell.spread),
        str(cell.n),
        printed.value if printed else "",
        (printed.spread or "") if printed else "",
        _text(cell.difference),
        cell.verdict,
    )


def _text(value: float) -> str:
    """Six digits; what floating point leaves of a difference of equals is 0."""
    return f"{round(value, 9) + 0.0:.6g}"
