"""Differences of the rows of a sweep to those of a baseline method, paired by seed."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpbench.metrics.registry import parse_name
from dpbench.metrics.students_t import Estimate, paired
from dpbench.records.record import Record
from dpbench.system.errors import UserError, nearest
from dpbench.tables.grid import NO_VALUE, signed
from dpbench.tables.sweep.cells import Key, Runs, SweepLayout, value_of

METHOD = "method"

CHOSEN = (METHOD, "optimizer", "schedule")
"""The groups whose settings are chosen for each method."""


@dataclass(frozen=True)
class Differences:
    """The runs of a sweep, compared with those of the layout's baseline method.

    A cell is compared with the one cell of the baseline on the same terms: settings that are chosen
    for each method, such as a bound or a learning rate, may differ.
    """

    layout: SweepLayout
    runs: Mapping[tuple[Key, Key], Runs]

    def rows(self) -> set[Key]:
        """The rows with a method that is compared."""
        return {row for row, _ in self._compared()}

    def columns(self) -> set[Key]:
        """The columns with a method that is compared."""
        return {column for _, column in self._compared()}

    def of(self, row: Key, column: Key, metric: str) -> Estimate | None:
        """The mean difference over common seeds in the metric's unit, with its 95% interval; None
        without one baseline to compare with, without common seeds, or where a run diverged."""
        ours = self.runs.get((row, column))
        if ours is None or self._method(row, column) == self.layout.baseline:
            return None
        bases = [
            runs
            for cell, runs in self.runs.items()
            if self._method(*cell) == self.layout.baseline
            and self._shared(*cell) == self._shared(row, column)
        ]
        if len(bases) != 1:
            return None
        return paired(ours.by_seed(metric), bases[0].by_seed(metric))

    def text(self, row: Key, column: Key, metric: str) -> str:
        """`+0.52 [+0.10, +0.94] (5)`: difference, interval, and number of common seeds."""
        found, known = self.of(row, column, metric), parse_name(metric).metric
        if found is None:
            return NO_VALUE
        digits, interval = known.digits if known else None, ""
        if found.half is not None:
            low, high = (signed(found.mean + half, digits) for half in (-found.half, found.half))
            interval = f" [{low}, {high}]"
        return f"{signed(found.mean, digits)}{interval} ({found.n})"

    def _compared(self) -> Iterator[tuple[Key, Key]]:
        yield from (cell for cell in self.runs if self._method(*cell) != self.layout.baseline)

    def _method(self, row: Key, column: Key) -> object:
        return self._values(row, column)[METHOD]

    def _shared(self, row: Key, column: Key) -> dict[str, object]:
        """The values of the settings that are not chosen for each method."""
        values = self._values(row, column).items()
        return {key: value for key, value in values if key.partition(".")[0] not in CHOSEN}

    def _values(self, row: Key, column: Key) -> dict[str, object]:
        return dict(zip((*self.layout.rows, *self.layout.columns), (*row, *column), strict=True))


def check_baseline(baseline: str, keys: Collection[str], records: Sequence[Record]) -> None:
    """UserError for a baseline that no run has, or where methods are neither rows nor columns."""
    methods = {str(value_of(record.config, METHOD)) for record in records}
    if baseline not in methods:
        raise UserError(
            f"no selected run has the method baseline={baseline}: {nearest(baseline, methods)}"
        )
    if METHOD not in keys:
        raise UserError(
            f"baseline={baseline} is a method that others are compared with: add method to rows or "
            "columns."
        )
