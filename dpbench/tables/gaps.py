"""How far each method is from the reference, where only differences can be compared with print."""

import math
import statistics
from collections.abc import Iterator, Sequence

from dpbench.metrics.paired import is_paired
from dpbench.tables.cells import standard_deviation
from dpbench.tables.grid import NOTHING, Grid, number
from dpbench.tables.published import Published, PublishedTable
from dpbench.tables.runs import Row
from dpbench.tables.spec import Column, TableSpec

CONFIDENCE = 0.95
UNCLEAR = "unclear"


def gaps_grid(spec: TableSpec, rows: Sequence[Row], published: PublishedTable) -> Grid:
    """Our mean gap to the reference over paired seeds, beside the printed one.

    Only where both numbers of a gap were printed. ± is the standard deviation of the differences
    by seed, and of the printed gap that of independent runs.
    """
    head = ("method", "column", "our gap ± standard deviation (seeds)", "printed gap", "direction")
    lines = [
        _line(column, row, reference, pair)
        for row, reference in _against_reference(spec, rows)
        for column in spec.columns
        if not (row.method == spec.baseline and is_paired(column.metric))
        and (pair := _printed(published, row, reference, column))
    ]
    return Grid(f"Gaps to {spec.reference}", head, tuple(lines))


def _against_reference(spec: TableSpec, rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Each other row that was run, with the reference's row under the same condition."""
    references: dict[str, Row] = {}
    for row in rows:
        if row.method == spec.reference:
            references.setdefault(row.condition, row)
    for row in rows:
        if row.method != spec.reference and len(row.runs) and row.condition in references:
            yield row, references[row.condition]


def _printed(
    published: PublishedTable, row: Row, reference: Row, column: Column
) -> tuple[Published, Published] | None:
    mine = published.get((row.name, column.name))
    theirs = published.get((reference.name, column.name))
    return (mine, theirs) if mine and theirs else None


def _line(
    column: Column, row: Row, reference: Row, printed: tuple[Published, Published]
) -> tuple[str, ...]:
    gaps = paired_gaps(row, reference, column)
    mine, theirs = printed
    gap = float(mine.value) - float(theirs.value)
    spreads = [float(n.spread) if n.spread else math.nan for n in printed]
    ours = _signed(statistics.fmean(gaps), standard_deviation(gaps), column) if gaps else NOTHING
    return (
        row.label,
        column.name,
        f"{ours} ({len(gaps)})",
        _signed(gap, math.hypot(*spreads), column),
        direction(gaps, round(gap, 9)),
    )


def paired_gaps(row: Row, reference: Row, column: Column) -> list[float]:
    """The row's value - the reference's, in the column's unit, for each seed that both have."""
    ours, theirs = row.values(column.metric), reference.values(column.metric)
    return [column.factor * (ours[s] - theirs[s]) for s in sorted(ours.keys() & theirs.keys())]


def direction(gaps: Sequence[float], printed: float) -> str:
    """Whether our gaps point where the printed one does.

    Unclear if the 95% confidence interval of their mean (Student's t) holds 0, or with one seed.
    """
    if not gaps or not all(map(math.isfinite, gaps)):
        return "no number"
    if not printed:
        return "tie in print"
    mean = statistics.fmean(gaps)
    if len(gaps) < 2 or abs(mean) <= _half_width(gaps):
        return UNCLEAR
    return "as printed" if mean * printed > 0 else "opposite"


def _half_width(values: Sequence[float]) -> float:
    from scipy import stats

    t = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
    return t * standard_deviation(values) / math.sqrt(len(values))


def _signed(value: float, spread: float, column: Column) -> str:
    text = number(value, column.digits)
    text = f"+{text}" if value > 0 and float(text) else text
    return text if math.isnan(spread) else f"{text} ± {number(spread, column.digits)}"
