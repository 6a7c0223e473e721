"""Whether the rows are in the published order, by pairs that differ significantly in print."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping

from dpbench.comparison.tables.claims.comparisons import ClaimEvidence
from dpbench.comparison.tables.claims.quantities import PrintedNumber, quantity
from dpbench.comparison.tables.columns import Column
from dpbench.comparison.tables.edition import Edition
from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.verdict import FAILS, HOLDS, UNDECIDED
from dpbench.learning.metrics.derived import is_paired
from dpbench.learning.metrics.paired_t import LEVEL, PairedTest, holm, paired_test

HEAD = ("column", "pairs apart in print", "as printed", "reversed", "undecided")
RULE = (
    "Order: pairs of rows under one condition whose printed numbers are more than twice their "
    "standard errors and rounding apart; as printed or reversed where our gap, paired by seed, "
    "lies on one side of 0 (two-sided t-test at 5%, Holm's correction within the column)."
)


def order_of(edition: Edition, evidence: ClaimEvidence) -> dict[str, Counter]:
    """By column, the verdicts on the pairs of rows whose printed numbers differ, with counts."""
    counts = {c.name: Counter(_verdicts(edition, evidence, c)) for c in edition.columns}
    return {column: count for column, count in counts.items() if count.total()}


def order_grid(counts: dict[str, Counter]) -> Grid:
    """One line for each column."""
    lines = [
        (column, *map(str, (n.total(), n[HOLDS], n[FAILS], n.total() - n[HOLDS] - n[FAILS])))
        for column, n in counts.items()
    ]
    return Grid("Order of the rows", HEAD, tuple(lines))


def _verdicts(edition: Edition, evidence: ClaimEvidence, column: Column) -> Iterator[str]:
    tests = list(_tests(edition, evidence, column))
    for test, p in zip(tests, holm([test.p_difference for test in tests]), strict=True):
        yield UNDECIDED if p > LEVEL else HOLDS if test.mean > 0 else FAILS


def _tests(edition: Edition, evidence: ClaimEvidence, column: Column) -> Iterator[PairedTest]:
    """The tests of our gaps, of which those with print's sign are positive; NaN without runs."""
    value = quantity(column.name, [column])
    without = edition.file.baseline if is_paired(column.metric) else None
    methods = [method for method in edition.file.methods if method != without]
    for condition in evidence.conditions:
        for row, other in itertools.combinations(methods, 2):
            printed = evidence.printed_gap(condition, row, other, value)
            if printed and _apart(printed):
                gaps = evidence.gaps(condition, row, other, value)
                yield _in_order(gaps, printed)


def _apart(gap: PrintedNumber) -> bool:
    return abs(gap.value) > 2 * gap.error + 2 * gap.rounding


def _in_order(gaps: Mapping[int, float], printed: PrintedNumber) -> PairedTest:
    sign = 1 if printed.value > 0 else -1
    return paired_test([sign * gap for gap in gaps.values()] or [math.nan], 0.0)
