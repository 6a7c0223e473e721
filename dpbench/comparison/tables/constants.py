"""How many cells a constant table would pass: a baseline for the verdicts."""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dpbench.comparison.tables.cells import Cell
from dpbench.comparison.tables.columns import Column
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.edition import Edition
from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.published import Published, PublishedTable
from dpbench.comparison.tables.verdict import MARGINS, REPRODUCED, reproduces

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
    passed = _passed(edition, column, numbers)
    return ConstantBaseline(condition, column, len(numbers), *map(len, passed))


def _passed(
    edition: Edition, column: Column, numbers: list[Published]
) -> tuple[list[Published], list[Published]]:
    """The printed numbers of a column that 0, and that their mean would reproduce."""
    mean = statistics.fmean(float(number.value) for number in numbers)
    runs = max(2, edition.published_runs)
    zeros, means = (
        [n for n in numbers if reproduces(edition, column, [constant] * runs, n)[0] == REPRODUCED]
        for constant in (0.0, mean)
    )
    return zeros, means


@dataclass(frozen=True)
class Reproduced:
    """How many different numbers are printed and judged, how many of them are reproduced, and how
    many of these no constant would reproduce."""

    printed: int
    reproduced: int
    beyond_constants: int


def reproduced(edition: Edition, published: PublishedTable, cells: Iterable[Cell]) -> Reproduced:
    """The counts of a table; of several rows beside one printed number, the first counts."""
    by_constant = {
        id(number)
        for condition in edition.conditions
        for column in edition.columns
        if column.judged and (numbers := list(_printed(edition, published, condition, column)))
        for passed in _passed(edition, column, numbers)
        for number in passed
    }
    first: dict[int, str] = {}
    for cell in cells:
        if cell.published and cell.n and cell.column.judged:
            first.setdefault(id(cell.published), cell.verdict)
    found = [number for number, verdict in first.items() if verdict == REPRODUCED]
    return Reproduced(len(first), len(found), sum(n not in by_constant for n in found))
