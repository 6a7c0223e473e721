"""How many cells a table without any content would pass: a measure of what verdicts are worth."""

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from dpbench.tables.conditions import row_name
from dpbench.tables.grid import Grid
from dpbench.tables.published import Published, PublishedTable
from dpbench.tables.spec import Column, TableSpec
from dpbench.tables.verdict import CLOSE, REPRODUCED, tolerance, verdict

RULE = (
    "Constants: how many of a column's cells would be reproduced or close if every row had 0, or "
    "the mean of the column's printed numbers, over as many runs and without an error of its own."
)


class Passed(NamedTuple):
    """Of the printed numbers of a column under a condition, how many a constant would pass."""

    condition: str
    column: Column
    tolerance: float
    printed: int
    zeros: int
    means: int


def constants(spec: TableSpec, published: PublishedTable) -> list[Passed]:
    """Every column with printed numbers, under every condition."""
    return [
        _passed(spec, published, condition, column, numbers)
        for condition in spec.conditions
        for column in spec.columns
        if (numbers := list(_printed(spec, published, condition, column)))
    ]


def constants_grid(found: list[Passed]) -> Grid:
    """One line for each column and condition."""
    lines = [
        (
            row_name(p.condition, p.column.name),
            f"{p.tolerance:g}",
            str(p.printed),
            *(f"{n} (all)" if n == p.printed else str(n) for n in (p.zeros, p.means)),
        )
        for p in found
    ]
    head = ("column", "close within", "printed", "zeros that pass", "means that pass")
    return Grid("What a constant would pass", head, tuple(lines))


def _printed(
    spec: TableSpec, published: PublishedTable, condition: str, column: Column
) -> Iterator[Published]:
    for method in spec.methods:
        if number := published.get((row_name(condition, method), column.printed)):
            yield number


def _passed(
    spec: TableSpec,
    published: PublishedTable,
    condition: str,
    column: Column,
    numbers: list[Published],
) -> Passed:
    close = tolerance(spec, published, condition, column)
    mean = statistics.fmean(float(number.value) for number in numbers)
    counts = [
        sum(
            verdict(spec, close, constant, 0.0, max(2, spec.published_runs), number)
            in (REPRODUCED, CLOSE)
            for number in numbers
        )
        for constant in (0.0, mean)
    ]
    return Passed(condition, column, close, len(numbers), *counts)
