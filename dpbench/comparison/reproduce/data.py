"""Writes a table or figure as data: the values of `tables.data`, and cells and claims as CSV."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from dpbench.comparison.compare.side import GIVEN
from dpbench.comparison.compare.verdict import UNDECIDED
from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.cells import TableCell
from dpbench.comparison.tables.claims.comparisons import JudgedClaim, RowComparison
from dpbench.comparison.tables.data import (
    CellData,
    ClaimData,
    ComparisonData,
    MeanInterval,
    Reproduced,
    RowData,
    json_file,
)
from dpbench.comparison.tables.grid import csv_text, grid_of
from dpbench.comparison.tables.page import Page
from dpbench.comparison.tables.runs import Row
from dpbench.comparison.tables.table import ResultTable
from dpbench.learning.metrics.paired_t import POWER, PairedTest
from dpbench.runs.records.record import Record


def table_json(
    target: Target,
    page: Page,
    records: Iterable[Record],
    rows: Iterable[Row],
    judged: Sequence[JudgedClaim],
    not_run: Mapping[str, str],
    printed: Reproduced | None = None,
    cells: Iterable[TableCell] = (),
) -> bytes:
    """The file of a table: the same runs give the same bytes."""
    seconds = {record.digest: record.provenance.get("seconds") for record in records}
    data = replace(
        page.data,
        name=target.name,
        scale=target.scale_label,
        printed=printed,
        rows=[_row(target, row, seconds) for row in rows if row.runs],
        claims=[_claim(one) for one in judged],
        cells=[_cell(cell) for cell in cells],
        searches=target.table.searches,
        not_run={**not_run},
    )
    return json_file(data)


def _row(target: Target, row: Row, seconds: Mapping[str, float | None]) -> RowData:
    digests = sorted(run["digest"] for run in row.runs)
    taken = [found for digest in digests if (found := seconds[digest]) is not None]
    again = {second: first for first, second in target.table.again.items()}
    tuning = target.tuning.get(row.name, GIVEN)
    return RowData(
        *(row.condition, row.method, row.variant),
        *(digests, tuning, _number(statistics.fmean(taken)) if taken else None),
        again.get(row.method, ""),
        target.table.chosen_by if tuning.trials else "",
    )


def _claim(judged: JudgedClaim) -> ClaimData:
    claim, (word, reason, _, effect) = judged.claim, judged.ruling
    is_open = word == UNDECIDED and not reason
    return ClaimData(
        *(claim.name, claim.statement, claim.source, claim.method, claim.regime, claim.read or ""),
        *(judged.verdict, reason),
        _interval(effect) if effect else None,
        effect.seeds_needed(POWER) if effect and is_open else None,
        [_comparison(c) for c in judged.comparisons],
    )


def _comparison(c: RowComparison) -> ComparisonData:
    return ComparisonData(
        *(c.condition, c.row, str(c.than), c.quantity.name),
        *(_interval(c.test) if c.gaps else None, _number(c.margin), c.verdict, c.reason),
        c.found.no_headroom if c.found else "",
    )


def _cell(cell: TableCell) -> CellData:
    return CellData(
        row=cell.row,
        column=cell.column.name,
        ours=_number(cell.ours),
        spread=_number(cell.spread),
        n=cell.n,
        published=cell.printed,
        published_spread=cell.printed_spread,
        verdict=cell.verdict,
    )


def _interval(test: PairedTest) -> MeanInterval:
    low, high = test.interval()
    return MeanInterval(_number(test.mean), _number(low), _number(high), test.n)


def _number(value: float) -> float | None:
    """Six significant digits, as sums depend on the order of records; None if it is not finite."""
    return float(f"{round(value, 9) + 0.0:.6g}") if math.isfinite(value) else None


CELLS: dict[str, Callable[[TableCell], str]] = {
    "condition": lambda cell: cell.condition,
    "method": lambda cell: cell.method,
    "column": lambda cell: cell.column.name,
    "ours": lambda cell: _text(cell.ours),
    "spread": lambda cell: _text(cell.spread),
    "n": lambda cell: str(cell.n),
    "published": lambda cell: cell.printed,
    "published_spread": lambda cell: cell.printed_spread,
    "difference": lambda cell: _text(cell.difference),
    "verdict": lambda cell: cell.verdict,
}
"""What the CSV file says of a cell, in the unit of its column and to six digits; NaN is `nan`."""


def to_csv(table: ResultTable) -> str:
    """One line per cell; where the table has conditions, the first column says which."""
    varied = any(cell.condition for cell in table.cells)
    columns = {head: text for head, text in CELLS.items() if varied or head != "condition"}
    return grid_of("", columns, table.cells).csv


CLAIMS_HEAD = (
    *("claim", "statement", "source", "claim_verdict", "claim_reason"),
    *("condition", "row", "than", "in"),
    *("gap", "low", "high", "n", "margin", "printed_gap", "verdict", "reason"),
)


def claims_file(judged: Sequence[JudgedClaim]) -> dict[str, bytes]:
    """The CSV file by suffix, none without claims: a line for each comparison of each claim, or one
    for a claim without comparisons."""
    lines = (
        (j.claim.name, j.claim.statement, j.claim.source, j.verdict, j.ruling.reason, *numbers)
        for j in judged
        for numbers in [_numbers(c) for c in j.comparisons] or [(*[""] * 10, j.verdict, "")]
    )
    return {"claims.csv": csv_text(CLAIMS_HEAD, lines).encode()} if judged else {}


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


def _text(value: float) -> str:
    """Six significant digits, after rounding errors around 0 are removed."""
    return f"{round(value, 9) + 0.0:.6g}"
