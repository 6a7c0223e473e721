"""How many cells a constant table would pass: a baseline for the verdicts."""

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from dpbench.tables.columns import Column
from dpbench.tables.conditions import row_name
from dpbench.tables.edition import Edition
from dpbench.tables.grid import Grid
from dpbench.tables.published import Published, PublishedTable
from dpbench.tables.verdict import MARGINS, judge
from dpbench.tables.verdict_words import REPRODUCED

RULE = (
    "Constants: how many of a column's cells would be reproduced if every row had 0, or the mean "
    "of the column's printed numbers, over as many runs and without an error of its own."
)


class ConstantBaseline(NamedTuple):
    """How many printed numbers of a column under a condition 0 and their mean would pass."""

    condition: str
    column: Column
    printed: int
    zeros: int
    means: int


def constants(edition: Edition, published: PublishedTable) -> list[ConstantBaseline]:
    """One for each column with printed numbers, under each condition."""
    return [
        _baseline(edition, condition, column, numbers)
        for condition in edition.conditions
        for column in edition.columns
        if column.judged and (numbers := list(_printed(edition, published, condition, column)))
    ]


def constants_grid(baselines: list[ConstantBaseline]) -> Grid:
    """One line for each column and condition."""
    lines = [
        (
            row_name(b.condition, b.column.name),
            f"{MARGINS} x {b.column.margin}",
            str(b.printed),
            *(f"{n} (all)" if n == b.printed else str(n) for n in (b.zeros, b.means)),
        )
        for b in baselines
    ]
    head = ("column", "within", "printed", "zeros that pass", "means that pass")
    return Grid("What a constant would pass", head, tuple(lines))


def _printed(
    edition: Edition, published: PublishedTable, condition: str, column: Column
) -> Iterator[Published]:
    for method in edition.file.methods:
        if number := published.get((row_name(condition, method), column.printed)):
            yield number


def _baseline(
    edition: Edition, condition: str, column: Column, numbers: list[Published]
) -> ConstantBaseline:
    mean = statistics.fmean(float(number.value) for number in numbers)
    runs = max(2, edition.published_runs)
    counts = [
        sum(judge(edition, column, [constant] * runs, n)[0] == REPRODUCED for n in numbers)
        for constant in (0.0, mean)
    ]
    return ConstantBaseline(condition, column, len(numbers), *counts)
