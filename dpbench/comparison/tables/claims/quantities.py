"""The quantities that claims compare, in runs and in print: columns, differences and means."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpbench.comparison.tables.edition import Edition, TableColumn, metric_column
from dpbench.comparison.tables.published import PublishedTable
from dpbench.comparison.tables.runs import Row
from dpbench.comparison.tables.verdict import published_standard_error
from dpbench.learning.metrics.metric import sign_of
from dpbench.learning.metrics.registry import parse_name
from dpbench.system.errors import UserError, nearest

MINUS = " - "
MEAN = re.compile(r"mean\((.+)\)")


@dataclass(frozen=True)
class PrintedNumber:
    """A printed number, its standard error and its rounding, in the column's unit."""

    value: float
    error: float
    rounding: float

    def __sub__(self, other: "PrintedNumber") -> "PrintedNumber":
        """The difference, its error being that of independent numbers."""
        return _combined((1.0, -1.0), (self, other))


def _combined(factors: Sequence[float], numbers: Sequence[PrintedNumber]) -> PrintedNumber:
    """The sum of the numbers times their factors, its error being that of independent numbers."""
    return PrintedNumber(
        sum(f * number.value for f, number in zip(factors, numbers, strict=True)),
        math.hypot(*(f * number.error for f, number in zip(factors, numbers, strict=True))),
        math.hypot(*(f * number.rounding for f, number in zip(factors, numbers, strict=True))),
    )


@dataclass(frozen=True)
class Quantity:
    """A sum of columns times factors, of which the first column defines which way is better."""

    name: str
    columns: tuple[TableColumn, ...]
    factors: tuple[float, ...] = (1.0,)

    @property
    def sign(self) -> int:
        return sign_of(self.columns[0].better)

    @property
    def first(self) -> "Quantity":
        """The quantity of the first column alone, whose values a relative margin is a share of."""
        return Quantity(self.columns[0].name, self.columns[:1])

    @property
    def digits(self) -> int | None:
        return self.columns[0].digits

    def values(self, row: Row) -> dict[int, float]:
        """What comparisons pair of a row's runs, in the column's unit."""
        terms = [
            {
                seed: factor * column.factor * value
                for seed, value in row.compared(column.metric).items()
            }
            for column, factor in zip(self.columns, self.factors, strict=True)
        ]
        return {seed: sum(term[seed] for term in terms) for seed in terms[0]}

    def printed(self, numbers: "PrintedTable", row: str) -> PrintedNumber | None:
        """The printed number of the row of that name; None where it was not printed."""
        printed = [numbers.get((row, column.printed)) for column in self.columns]
        present = [number for number in printed if number]
        return _combined(self.factors, present) if len(present) == len(printed) else None


PrintedTable = Mapping[tuple[str, str], PrintedNumber]
"""By the name of a row and a column's name in print."""


def printed_table(edition: Edition, published: PublishedTable) -> PrintedTable:
    """The printed numbers with the standard errors that follow from their spreads."""
    return {
        cell: PrintedNumber(float(p.value), published_standard_error(edition, p), p.rounding)
        for cell, p in published.items()
    }


def quantity(name: str, columns: Iterable[TableColumn]) -> Quantity:
    """The quantity of that name; UserError for one that is none of these.

    `acc_b`, `acc_b - acc_a` or `mean(acc_a, acc_b)`, of the names of `columns` or of metrics.
    """
    known = {column.name: column for column in columns}
    mean = MEAN.fullmatch(name)
    parts = re.split(", *", mean[1]) if mean else name.split(MINUS)
    for part in (part for part in parts if part not in known):
        if not parse_name(part).is_known:
            raise UserError(f"A claim is about {part}: {nearest(part, known)}")
        known[part] = metric_column(part)
    if mean:
        factors = (1 / len(parts),) * len(parts)
    elif len(parts) <= 2:
        factors = (1.0, -1.0)[: len(parts)]
    else:
        raise UserError(
            f"A claim compares a column, the difference of two or the mean of some, and not {name}."
        )
    return Quantity(name, tuple(known[part] for part in parts), factors)
