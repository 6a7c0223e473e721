"""Differences of the rows of a sweep to those of a baseline method, paired by seed."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpbench.comparison.compare.pairs import compare, difference
from dpbench.comparison.compare.side import CHOSEN, Side, task_of, tuning_of
from dpbench.comparison.compare.verdict import Judged
from dpbench.comparison.tables.grid import NO_VALUE, interval_text
from dpbench.comparison.tables.sweep.cells import CellKey, Runs, SweepLayout, value_of
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

    @cached_property
    def bases(self) -> dict[CellKey, CellKey | None]:
        """The cells of other methods, each with the cell that it is compared with, if it is one."""
        keys = (*self.layout.rows, *self.layout.columns)
        values = {cell: dict(zip(keys, (*cell[0], *cell[1]), strict=True)) for cell in self.runs}
        shared = {
            cell: {k: v for k, v in own.items() if k.partition(".")[0] not in CHOSEN}
            for cell, own in values.items()
        }
        own = [cell for cell in self.runs if values[cell][METHOD] == self.layout.baseline]
        alike = {c: [b for b in own if shared[b] == shared[c]] for c in self.runs if c not in own}
        return {cell: bases[0] if len(bases) == 1 else None for cell, bases in alike.items()}

    def of(self, cell: CellKey, metric: str) -> PairedTest | None:
        """The differences over common seeds in the metric's unit, row minus baseline, against the
        metric's margin; None without one baseline to compare with, or without common seeds."""
        base = self.bases.get(cell)
        return difference(*self._sides(cell, base, metric), metric) if base else None

    @cached_property
    def judged(self) -> Mapping[tuple[CellKey, str], Judged]:
        """By cell and metric; the cells that have one baseline are read together."""
        together = grouped((base, cell) for cell, base in self.bases.items() if base)
        return {
            (cell, metric): found
            for metric in self.layout.metrics
            for base, cells in together.items()
            for cell, found in compare(
                {cell: self._sides(cell, base, metric) for cell in cells}, metric
            ).items()
        }

    def text(self, cell: CellKey, metric: str) -> str:
        """`+0.52 [+0.10, +0.94] (5), better`: difference, interval, common seeds, and verdict."""
        if (found := self.of(cell, metric)) is None:
            return NO_VALUE
        interval = f"{interval_text(found, metric_of(metric).digits)} ({found.n})"
        judged = self.judged.get((cell, metric))
        shown = interval if math.isfinite(found.mean) else NO_VALUE
        return f"{shown}, {judged.words}" if judged else shown

    def _sides(self, cell: CellKey, base: CellKey, metric: str) -> tuple[Side, Side]:
        one, other = (self._side(self.runs[place].records, metric) for place in (cell, base))
        return one, other

    def _side(self, records: Sequence[Record], metric: str) -> Side:
        tuning = tuning_of(records[0], self.layout.trials)
        return Side.of(task_of(records[0])[0], records, metric, tuning)


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
