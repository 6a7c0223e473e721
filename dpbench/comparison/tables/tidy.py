"""A table as tidy CSV, for other programs."""

import math
from collections.abc import Sequence

from dpbench.comparison.tables.cells import Cell
from dpbench.comparison.tables.claims.comparisons import JudgedClaim, RowComparison
from dpbench.comparison.tables.grid import csv_text
from dpbench.comparison.tables.table import Table

HEAD = (
    *("method", "column", "ours", "spread", "n"),
    *("published", "published_spread", "difference", "verdict"),
)


def to_csv(table: Table) -> str:
    """One line per cell, in the unit of its column and to six digits; NaN is `nan`.

    Where the table has conditions, the first column says which.
    """
    varied = any(cell.condition for cell in table.cells)
    if not varied:
        return csv_text(HEAD, map(_line, table.cells))
    return csv_text(("condition", *HEAD), ((cell.condition, *_line(cell)) for cell in table.cells))


CLAIMS_HEAD = (
    *("claim", "statement", "source", "claim_verdict", "claim_reason"),
    *("condition", "row", "than", "in"),
    *("gap", "low", "high", "n", "margin", "printed_gap", "verdict", "reason"),
)


def claims_csv(judged: Sequence[JudgedClaim]) -> str:
    """One line for each comparison of each claim, or one line for a claim without comparisons."""
    lines = (
        (j.claim.name, j.claim.statement, j.claim.source, j.verdict, j.ruling.reason, *numbers)
        for j in judged
        for numbers in [_numbers(c) for c in j.comparisons] or [(*[""] * 10, j.verdict, "")]
    )
    return csv_text(CLAIMS_HEAD, lines)


def claims_file(judged: Sequence[JudgedClaim]) -> dict[str, bytes]:
    """The file of `claims_csv` by suffix; none without claims."""
    return {"claims.csv": claims_csv(judged).encode()} if judged else {}


def _numbers(c: RowComparison) -> tuple[str, ...]:
    mean, low, high = (c.test.mean, *c.test.interval()) if c.gaps else (math.nan,) * 3
    return (
        c.condition,
        c.row,
        str(c.than),
        c.quantity.name,
        *(_text(value) for value in (mean, low, high)),
        str(len(c.gaps)),
        _text(c.margin),
        _text(c.printed.value) if c.printed else "",
        c.verdict,
        c.reason,
    )


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
    """Six significant digits, after rounding errors around 0 are removed."""
    return f"{round(value, 9) + 0.0:.6g}"
