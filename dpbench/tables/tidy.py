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
    """One line per cell, in the unit of its column and to six digits; NaN is `nan`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    writer.writerows(map(_line, table.cells))
    return text.getvalue()


def _line(cell: Cell) -> tuple[str, ...]:
    printed = cell.published
    return (
        cell.row,
        cell.column.name,
        f"{cell.ours:.6g}",
        f"{cell.spread:.6g}",
        str(cell.n),
        printed.value if printed else "",
        (printed.spread or "") if printed else "",
        f"{cell.difference:.6g}",
        cell.verdict,
    )
