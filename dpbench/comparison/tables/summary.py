"""The summary of a table's verdicts: its first sentences, what constants would pass, and the order
of its rows."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dpbench.comparison.tables.cells import TableCell
from dpbench.comparison.tables.claims.comparisons import ClaimEvidence, JudgedClaim
from dpbench.comparison.tables.claims.grids import count_verdicts
from dpbench.comparison.tables.claims.quantities import quantity
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.data import Reproduced
from dpbench.comparison.tables.edition import Edition, TableColumn
from dpbench.comparison.tables.grid import range_text
from dpbench.comparison.tables.published import Published, PublishedTable
from dpbench.comparison.tables.verdict import (
    DIFFERS,
    FAILS,
    HOLDS,
    MARGINS,
    NOT_JUDGED,
    OTHER_SCALE,
    REPRODUCED,
    UNDECIDED,
    counted_verdict,
    reproduces,
)
from dpbench.learning.metrics.derived import is_paired
from dpbench.learning.metrics.paired_t import LEVEL, PairedTest, holm, paired_test
from dpbench.system.errors import counted

CONSTANTS_RULE = (
    "Constants: how many of a column's cells would be reproduced if every row had 0, or the mean "
    "of the column's printed numbers, over as many runs and without an error of its own."
)


class ConstantBaseline(NamedTuple):
    """The printed numbers of a column under a condition, and those that 0 and their mean pass."""

    condition: str
    column: TableColumn
    printed: list[Published]
    zeros: list[Published]
    means: list[Published]


def constants(edition: Edition, published: PublishedTable) -> list[ConstantBaseline]:
    """One for each column with printed numbers, under each condition."""
    return [
        ConstantBaseline(condition, column, numbers, *_passed(edition, column, numbers))
        for condition, column in itertools.product(edition.labels, edition.columns)
        if column.judged and (numbers := _printed(edition, published, condition, column))
    ]


CONSTANTS_COLUMNS: dict[str, Callable[[ConstantBaseline], str]] = {
    "column": lambda b: row_name(b.condition, b.column.name),
    "within": lambda b: f"{MARGINS} x {b.column.margin}",
    "printed": lambda b: str(len(b.printed)),
    "zeros that pass": lambda b: _share(b.zeros, b.printed),
    "means that pass": lambda b: _share(b.means, b.printed),
}


def _share(passed: Sequence[Published], printed: Sequence[Published]) -> str:
    return f"{len(passed)} (all)" if len(passed) == len(printed) else str(len(passed))


def _printed(
    edition: Edition, published: PublishedTable, condition: str, column: TableColumn
) -> list[Published]:
    rows = (row_name(condition, method) for method in edition.table.methods)
    return [number for row in rows if (number := published.get((row, column.printed)))]


def _passed(
    edition: Edition, column: TableColumn, numbers: list[Published]
) -> Iterator[list[Published]]:
    runs = max(2, edition.published_runs)
    for constant in (0.0, statistics.fmean(float(number.value) for number in numbers)):
        verdicts = ((n, reproduces(edition, column, [constant] * runs, n)[0]) for n in numbers)
        yield [number for number, verdict in verdicts if verdict == REPRODUCED]


def reproduced(baselines: Iterable[ConstantBaseline], cells: Iterable[TableCell]) -> Reproduced:
    """The counts of a table; of several rows beside one printed number, the first counts."""
    by_constant = {id(number) for b in baselines for number in (*b.zeros, *b.means)}
    first: dict[int, str] = {}
    for cell in cells:
        if cell.published and cell.n and cell.column.judged:
            first.setdefault(id(cell.published), cell.verdict)
    found = [number for number, verdict in first.items() if verdict == REPRODUCED]
    return Reproduced(len(first), len(found), sum(n not in by_constant for n in found))


ORDER_RULE = (
    "Order: pairs of rows under one condition whose printed numbers are more than twice their "
    "standard errors and rounding apart; as printed or reversed where our gap, paired by seed, "
    "lies on one side of 0 (two-sided t-test at 5%, Holm's correction within the column)."
)


def order_of(edition: Edition, evidence: ClaimEvidence) -> dict[str, Counter]:
    """By column, the verdicts on the pairs of rows whose printed numbers differ, with counts."""
    counts = {c.name: Counter(_verdicts(edition, evidence, c)) for c in edition.columns}
    return {column: count for column, count in counts.items() if count.total()}


ORDER_COLUMNS: dict[str, Callable[[tuple[str, Counter]], str]] = {
    "column": lambda pair: pair[0],
    "pairs apart in print": lambda pair: str(pair[1].total()),
    "as printed": lambda pair: str(pair[1][HOLDS]),
    "reversed": lambda pair: str(pair[1][FAILS]),
    "undecided": lambda pair: str(pair[1][UNDECIDED]),
}
"""Of a column and the verdicts on its pairs of rows."""


def _verdicts(edition: Edition, evidence: ClaimEvidence, column: TableColumn) -> Iterator[str]:
    tests = list(_tests(edition, evidence, column))
    for test, p in zip(tests, holm([test.p_difference for test in tests]), strict=True):
        yield UNDECIDED if p > LEVEL else HOLDS if test.mean > 0 else FAILS


def _tests(edition: Edition, evidence: ClaimEvidence, column: TableColumn) -> Iterator[PairedTest]:
    """The tests of our gaps, of which those with print's sign are positive; NaN without runs."""
    value = quantity(column.name, [column])
    without = edition.table.baseline if is_paired(column.metric) else None
    methods = [method for method in edition.table.methods if method != without]
    for condition in evidence.conditions:
        for row, other in itertools.combinations(methods, 2):
            printed = evidence.printed_gap(condition, row, other, value)
            if printed and abs(printed.value) > 2 * printed.error + 2 * printed.rounding:
                sign = 1 if printed.value > 0 else -1
                gaps = evidence.gaps(condition, row, other, value).values()
                yield paired_test([sign * gap for gap in gaps] or [math.nan], 0.0)


def claims_line(judged: Sequence[JudgedClaim]) -> str:
    """`6 claims: 5 hold, 1 fails (ece).`, with the names of those that fail."""
    if not judged:
        return ""
    failed = [j.claim.name for j in judged if j.ruling.word == FAILS]
    counts = count_verdicts((j.ruling.word for j in judged), failed)
    return f"{counted(len(judged), 'claim')}: {counts}."


def opening(cells: Sequence[TableCell]) -> str:
    """How many printed numbers are reproduced, in which rows some differ, and on how many seeds.

    Empty where nothing is printed.
    """
    printed = [c for c in cells if c.published and c.n and c.verdict != NOT_JUDGED]
    if not printed:
        return ""
    counts = Counter(cell.verdict for cell in printed)
    numbers = {cell.n for cell in printed}
    seeds = f"{range_text(min(numbers), max(numbers))} seed{'' if numbers == {1} else 's'}"
    if counts[OTHER_SCALE]:
        return (
            f"Not the paper's runs: {len(printed)} printed numbers are shown, not judged; {seeds}."
        )
    others = f"{counts[UNDECIDED]} {UNDECIDED}" if counts[UNDECIDED] else ""
    parts = [others, _differing([cell for cell in printed if cell.verdict == DIFFERS])]
    reproduced = f"{counts[REPRODUCED]} of {len(printed)} printed numbers are reproduced"
    text = f"{', '.join(filter(None, [reproduced, *parts]))}; {seeds}."
    different = len({id(cell.published) for cell in printed})
    if different < len(printed):
        text += (
            f" The paper prints {different} different ones; variants, and columns on other data, "
            "are held against the same."
        )
    return text


def _differing(cells: Sequence[TableCell]) -> str:
    """`3 differ (fairlens 2, sgd 1)`."""
    rows = Counter(cell.row for cell in cells)
    named = ", ".join(f"{row} {count}" for row, count in rows.most_common())
    counted = counted_verdict(len(cells), DIFFERS)
    return f"{counted} ({named})" if cells else f"none {DIFFERS}"


def constants_line(baselines: Sequence[ConstantBaseline], counts: Reproduced | None) -> str:
    """How many printed numbers a constant table would pass, and how many ours alone does."""
    if not baselines:
        return ""
    printed, zeros, means = (
        sum(len(getattr(b, name)) for b in baselines) for name in ("printed", "zeros", "means")
    )
    ours = ""
    if counts and counts.reproduced:
        both = counts.reproduced, counts.beyond_constants
        ours = " Of the {} that we reproduce, {} would be by neither.".format(*both)
    return (
        f"Constants: of {printed} printed numbers, {zeros} would be reproduced if every "
        f"row had 0, and {means} if every row had its column's mean.{ours}"
    )


def order_line(counts: Mapping[str, Counter]) -> str:
    """How many pairs of rows are in the printed order, and in which columns some are reversed."""
    total = sum(counts.values(), Counter[str]())
    if not total:
        return ""
    reversed_in = [column for column, n in counts.items() if n[FAILS]]
    where = f" ({', '.join(reversed_in)})" if reversed_in else ""
    return (
        f"Order: of {total.total()} pairs of rows that differ in print, {total[HOLDS]} have the "
        f"printed order and {total[FAILS]} the reverse{where}; {total[UNDECIDED]} are undecided."
    )
