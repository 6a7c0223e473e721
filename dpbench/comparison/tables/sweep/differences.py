"""Differences of the rows of a sweep to those of a baseline method, paired by seed."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpbench.comparison.compare.pairs import compare, difference
from dpbench.comparison.compare.side import CHOSEN, Side, task_of, tuning_of
from dpbench.comparison.compare.verdict import Judged
from dpbench.comparison.tables.grid import NO_VALUE, interval_text
from dpbench.comparison.tables.sweep.cells import CellKey, Key, Runs, SweepLayout, value_of
from dpbench.learning.metrics.paired_t import PairedTest
from dpbench.learning.metrics.registry import metric_of
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError, nearest
from dpbench.system.grouping import grouped

METHOD = "method"


@dataclass(frozen=True)
class Differences:
    """The runs of a sweep, compared with those of the layout's baseline method.

    A cell is compared with the one cell of the baseline that has its values of the settings which
    the table shows and which are not chosen for each method.
    """

    layout: SweepLayout
    runs: Mapping[CellKey, Runs]

    def rows(self) -> set[Key]:
        """The rows with a method that is compared."""
        return {row for row, _ in self._compared()}

    def columns(self) -> set[Key]:
        """The columns with a method that is compared."""
        return {column for _, column in self._compared()}

    def of(self, cell: CellKey, metric: str) -> PairedTest | None:
        """The differences over common seeds in the metric's unit, row minus baseline, against the
        metric's margin; None without one baseline to compare with, or without common seeds."""
        base = self._base(cell)
        return difference(*self._sides(cell, base, metric), metric) if base else None

    @cached_property
    def judged(self) -> Mapping[tuple[CellKey, str], Judged]:
        """By cell and metric; the cells that have one baseline are read together."""
        bases = grouped((base, cell) for cell in self._compared() if (base := self._base(cell)))
        return {
            (cell, metric): found
            for metric in self.layout.metrics
            for base, cells in bases.items()
            for cell, found in compare(
                {cell: self._sides(cell, base, metric) for cell in cells}, metric
            ).items()
        }

    def text(self, cell: CellKey, metric: str) -> str:
        """`+0.52 [+0.10, +0.94] (5), better`: difference, interval, common seeds, and verdict."""
        found = self.of(cell, metric)
        if found is None:
            return NO_VALUE
        shown = f"{interval_text(found, metric_of(metric).digits)} ({found.n})"
        shown = shown if math.isfinite(found.mean) else NO_VALUE
        judged = self.judged.get((cell, metric))
        return f"{shown}, {judged.words}" if judged else shown

    def _sides(self, cell: CellKey, base: CellKey, metric: str) -> tuple[Side, Side]:
        one, other = (
            Side.of(
                str(self._values(place)[METHOD]),
                self.runs[place].records,
                metric,
                tuning_of(self.runs[place].records[0], self.layout.trials),
            )
            for place in (cell, base)
        )
        return one, other

    def _base(self, cell: CellKey) -> CellKey | None:
        """The cell of the baseline with a cell's values of the table's settings; None for its own,
        and unless one has them."""
        if self._is_baseline(cell):
            return None
        bases = [
            place
            for place in self.runs
            if self._is_baseline(place) and self._shared(place) == self._shared(cell)
        ]
        return bases[0] if len(bases) == 1 else None

    def _compared(self) -> Iterator[CellKey]:
        yield from (cell for cell in self.runs if not self._is_baseline(cell))

    def _is_baseline(self, cell: CellKey) -> bool:
        return self._values(cell)[METHOD] == self.layout.baseline

    def _shared(self, cell: CellKey) -> dict[str, object]:
        """The values of the settings that are not chosen for each method."""
        values = self._values(cell).items()
        return {key: value for key, value in values if key.partition(".")[0] not in CHOSEN}

    def _values(self, cell: CellKey) -> dict[str, object]:
        row, column = cell
        return dict(zip((*self.layout.rows, *self.layout.columns), (*row, *column), strict=True))


def untuned(records: Sequence[Record], trials: Mapping[tuple, int]) -> tuple[str, ...]:
    """The methods among the records of which no search chose the settings on their data and model.

    trials: from `trials_by_task`.
    """
    return tuple(dict.fromkeys(task_of(r)[0] for r in records if not trials.get(task_of(r))))


def check_baseline(baseline: str, keys: Collection[str], records: Sequence[Record]) -> None:
    """UserError for a baseline that no run or every run has, or where methods are neither rows nor
    columns."""
    methods = {str(value_of(record.config, METHOD)) for record in records}
    if baseline not in methods:
        raise UserError(
            f"no selected run has the method baseline={baseline}: {nearest(baseline, methods)}"
        )
    if methods == {baseline}:
        raise UserError(f"all selected runs are of the method baseline={baseline}.")
    if METHOD not in keys:
        raise UserError(
            f"baseline={baseline} is a method that others are compared with: add method to rows or "
            "columns."
        )
