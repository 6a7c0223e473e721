"""Differences of the rows of a sweep to those of a baseline method, paired by seed."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpbench.config.names import method_name
from dpbench.metrics.paired_t import BETTER, WORSE, PairedTest, judge, paired_test
from dpbench.metrics.registry import parse_name
from dpbench.records.epsilon import EQUAL_BUDGETS, NOT_PRIVATE
from dpbench.records.record import Record
from dpbench.system.errors import UserError, nearest
from dpbench.tables.grid import NO_VALUE, interval_text
from dpbench.tables.sweep.cells import Cell, Key, Runs, SweepLayout, differing_settings, value_of

METHOD = "method"

CHOSEN = (METHOD, "optimizer", "schedule")
"""The groups whose settings are chosen for each method."""

TERMS = {"delta": "delta", "unit": "unit of privacy", "zero_out": "adjacency"}
"""The terms that epsilons must share to be compared, in words."""

UNTUNED = ", untuned"
"""After the verdict on a comparison that a method lost whose settings no search chose."""


@dataclass(frozen=True)
class Differences:
    """The runs of a sweep, compared with those of the layout's baseline method.

    A cell is compared with the one cell of the baseline on the same terms: settings that are chosen
    for each method, such as a bound or a learning rate, may differ, and no others, whether or not
    the table shows them; and epsilons are those of one budget.
    """

    layout: SweepLayout
    runs: Mapping[Cell, Runs]

    def rows(self) -> set[Key]:
        """The rows with a method that is compared."""
        return {row for row, _ in self._compared()}

    def columns(self) -> set[Key]:
        """The columns with a method that is compared."""
        return {column for _, column in self._compared()}

    def of(self, row: Key, column: Key, metric: str) -> PairedTest | None:
        """The differences over common seeds in the metric's unit, row minus baseline, against the
        metric's margin; None without one baseline to compare with, or without common seeds."""
        ours, base = self.runs.get((row, column)), self._base(row, column)
        if ours is None or base is None:
            return None
        values, others = ours.by_seed(metric), base.by_seed(metric)
        gaps = [values[seed] - others[seed] for seed in values if seed in others]
        if not all(map(math.isfinite, gaps)) or not gaps:
            return None
        largest = max(abs(ours.mean(metric).value), abs(base.mean(metric).value))
        return paired_test(gaps, parse_name(metric).margin.at(largest))

    @cached_property
    def verdicts(self) -> Mapping[tuple[Key, Key, str], str]:
        """By row, column and metric: better, worse, equivalent or undecided, corrected for the
        number of comparisons. What loses by settings that no search chose says so."""
        tests = {
            (row, column, metric): test.scaled(known.sign)
            for row, column in self._compared()
            for metric in self.layout.metrics
            if (known := parse_name(metric).metric) and known.better
            if (test := self.of(row, column, metric))
        }
        verdicts = dict(zip(tests, judge([*tests.values()]), strict=True))
        return {
            cell: f"{verdict}{self._excuse(*cell[:2], verdict)}"
            for cell, verdict in verdicts.items()
        }

    def text(self, row: Key, column: Key, metric: str) -> str:
        """`+0.52 [+0.10, +0.94] (5), better`: difference, interval, common seeds, and verdict."""
        found, known = self.of(row, column, metric), parse_name(metric).metric
        if found is None:
            return NO_VALUE
        shown = f"{interval_text(found, known.digits if known else None)} ({found.n})"
        return ", ".join(filter(None, [shown, self.verdicts.get((row, column, metric), "")]))

    def _excuse(self, row: Key, column: Key, verdict: str) -> str:
        """Why a loser may have lost: by settings that no search chose."""
        if verdict not in (BETTER, WORSE):
            return ""
        loser = self.layout.baseline if verdict == BETTER else self._method(row, column)
        return UNTUNED if loser in self.layout.untuned else ""

    def on_other_terms(self) -> Iterator[str]:
        """For each method with cells that are not compared, what they and the baseline differ in,
        such as: DP-SGD-Global (epochs, epsilon)."""
        found: dict[object, list[str]] = {}
        for cell in self._compared():
            if base := self._same_cell(*cell):
                differing = found.setdefault(self._method(*cell), [])
                differing += _differing_terms(self.runs[cell], base)
        for method, differing in found.items():
            if differing:
                yield f"{method_name(str(method))} ({', '.join(dict.fromkeys(differing))})"

    def _base(self, row: Key, column: Key) -> Runs | None:
        """The runs of the baseline on the same terms as a cell."""
        ours, base = self.runs.get((row, column)), self._same_cell(row, column)
        return base if ours and base and not _differing_terms(ours, base) else None

    def _same_cell(self, row: Key, column: Key) -> Runs | None:
        """The runs of the baseline with a cell's values of the table's settings; None for its own,
        and unless one cell has them."""
        if self._method(row, column) == self.layout.baseline:
            return None
        bases = [
            runs
            for cell, runs in self.runs.items()
            if self._method(*cell) == self.layout.baseline
            and self._shared(*cell) == self._shared(row, column)
        ]
        return bases[0] if len(bases) == 1 else None

    def _compared(self) -> Iterator[Cell]:
        yield from (cell for cell in self.runs if self._method(*cell) != self.layout.baseline)

    def _method(self, row: Key, column: Key) -> object:
        return self._values(row, column)[METHOD]

    def _shared(self, row: Key, column: Key) -> dict[str, object]:
        """The values of the settings that are not chosen for each method."""
        values = self._values(row, column).items()
        return {key: value for key, value in values if key.partition(".")[0] not in CHOSEN}

    def _values(self, row: Key, column: Key) -> dict[str, object]:
        return dict(zip((*self.layout.rows, *self.layout.columns), (*row, *column), strict=True))


def _differing_terms(ours: Runs, base: Runs) -> list[str]:
    """The settings that differ, but for those that are chosen for each method, and what differs of
    the epsilons."""
    configs = [side.records[0].config for side in (ours, base)]
    groups = (*CHOSEN, "privacy")  # what differs of privacy is said in the words of epsilons
    settings = sorted(k for k in differing_settings(configs) if k.partition(".")[0] not in groups)
    if NOT_PRIVATE in (ours.epsilon, base.epsilon):
        return settings
    terms, others = ours.terms, base.terms
    if terms is None or others is None:
        budgets = [config.get("privacy") for config in configs]
        return settings if budgets[0] == budgets[1] else [*settings, "privacy"]
    differing = [
        word for name, word in TERMS.items() if getattr(terms, name) != getattr(others, name)
    ]
    low, high = sorted((float(ours.epsilon), float(base.epsilon)))
    return [*settings, *differing, *(["epsilon"] if high > EQUAL_BUDGETS * low else [])]


def untuned(records: Sequence[Record], trials: Sequence[Record]) -> tuple[str, ...]:
    """The methods among the records of which there is no trial of a search, on the same data set
    and model.

    trials: the runs in the same folder that have a validation split.
    """
    tried = {_task(trial) for trial in trials}
    return tuple(dict.fromkeys(_task(r)[0] for r in records if _task(r) not in tried))


def _task(record: Record) -> tuple[str, str, str]:
    method, dataset, model = (record.config["choices"][g] for g in (METHOD, "dataset", "model"))
    return method, dataset, model


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
