"""The quantities that claims compare: a column, or the difference of two, in runs and in print."""

import functools
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dpbench.errors import UserError, nearest
from dpbench.tables.published import PublishedTable
from dpbench.tables.runs import Row
from dpbench.tables.spec import Column, TableSpec
from dpbench.tables.verdict import published_standard_error

MINUS = " - "


@dataclass(frozen=True)
class PrintedNumber:
    """A printed number, its standard error and its rounding, in the column's unit."""

    value: float
    error: float
    rounding: float

    def __sub__(self, other: "PrintedNumber") -> "PrintedNumber":
        """The difference, its error being that of independent numbers."""
        return PrintedNumber(
            self.value - other.value,
            math.hypot(self.error, other.error),
            math.hypot(self.rounding, other.rounding),
        )


@dataclass(frozen=True)
class Quantity:
    """A column, or the difference of two, of which the first defines which way is better."""

    name: str
    columns: tuple[Column, ...]

    @property
    def sign(self) -> int:
        """1 where higher is better, else -1."""
        return 1 if self.columns[0].better == "higher" else -1

    @property
    def digits(self) -> int | None:
        return self.columns[0].digits

    def values(self, row: Row) -> dict[int, float]:
        """The values of a row's runs by seed, in the column's unit."""
        first, *rest = [
            {seed: column.factor * value for seed, value in row.values(column.metric).items()}
            for column in self.columns
        ]
        return {seed: value - sum(other[seed] for other in rest) for seed, value in first.items()}

    def printed(self, numbers: "PrintedTable", row: str) -> PrintedNumber | None:
        """The printed number of the row of that name; None where it was not printed."""
        first, *rest = (numbers.get((row, column.printed)) for column in self.columns)
        if first is None or None in rest:
            return None
        return functools.reduce(operator.sub, filter(None, rest), first)


PrintedTable = Mapping[tuple[str, str], PrintedNumber]
"""By the name of a row and a column's name in print."""


def printed_table(spec: TableSpec, published: PublishedTable) -> PrintedTable:
    """The printed numbers with the standard errors that follow from their spreads."""
    return {
        cell: PrintedNumber(float(p.value), published_standard_error(spec, p), p.rounding)
        for cell, p in published.items()
    }


def quantity(name: str, columns: Iterable[Column]) -> Quantity:
    """The quantity of that name, `acc_b` or `acc_b - acc_a`; UserError for an unknown column."""
    known = {column.name: column for column in columns}
    parts = name.split(MINUS)
    for part in parts:
        if part not in known:
            raise UserError(f"A claim is about {part}: {nearest(part, known)}")
    if len(parts) > 2:
        raise UserError(f"A claim compares a column or the difference of two, and not {name}.")
    return Quantity(name, tuple(known[part] for part in parts))
