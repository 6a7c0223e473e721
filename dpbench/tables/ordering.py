"""Whether the rows are in the published order, by pairs that differ significantly in print."""

import itertools
from collections import Counter
from collections.abc import Iterator

from dpbench.metrics.paired import is_paired
from dpbench.tables.claims.comparisons import FAILS, HOLDS, Evidence, verdict_of
from dpbench.tables.claims.quantities import PrintedNumber, Quantity, quantity
from dpbench.tables.grid import Grid
from dpbench.tables.spec import Column, TableSpec

HEAD = ("column", "pairs apart in print", "as printed", "reversed", "undecided")
RULE = (
    "Order: pairs of rows under one condition whose printed numbers are more than twice their "
    "standard errors and rounding apart; as printed or reversed where the 95% interval of our gap, "
    "paired by seed, lies on one side of 0."
)


def order_of(spec: TableSpec, evidence: Evidence) -> dict[str, Counter]:
    """By column, the verdicts on the pairs of rows whose printed numbers differ, with counts."""
    counts = {column.name: Counter(_verdicts(spec, evidence, column)) for column in spec.columns}
    return {column: count for column, count in counts.items() if count.total()}


def order_grid(counts: dict[str, Counter]) -> Grid:
    """One line for each column."""
    lines = [
        (column, *map(str, (n.total(), n[HOLDS], n[FAILS], n.total() - n[HOLDS] - n[FAILS])))
        for column, n in counts.items()
    ]
    return Grid("Order of the rows", HEAD, tuple(lines))


def _verdicts(spec: TableSpec, evidence: Evidence, column: Column) -> Iterator[str]:
    value = quantity(column.name, [column])
    paired = is_paired(column.metric)
    methods = [method for method in spec.methods if not (paired and method == spec.baseline)]
    for condition in evidence.conditions:
        for row, other in itertools.combinations(methods, 2):
            printed = evidence.printed_gap(condition, row, other, value)
            if printed and _apart(printed):
                yield _verdict(evidence, condition, row, other, value, printed.value)


def _apart(gap: PrintedNumber) -> bool:
    return abs(gap.value) > 2 * gap.error + 2 * gap.rounding


def _verdict(
    evidence: Evidence, condition: str, row: str, other: str, value: Quantity, printed: float
) -> str:
    gaps = evidence.gaps(condition, row, other, value)
    return verdict_of([gap if printed > 0 else -gap for gap in gaps])
