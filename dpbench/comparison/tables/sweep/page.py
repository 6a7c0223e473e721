"""The table of a sweep: means over seeds and epsilons, as Markdown, CSV and LaTeX."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dpbench.comparison.compare.pairs import compare, difference
from dpbench.comparison.compare.side import CHOSEN as CHOSEN_BY_METHOD
from dpbench.comparison.compare.side import Side, task_of
from dpbench.comparison.compare.tuning import tuning_of
from dpbench.comparison.compare.verdict import Judged
from dpbench.comparison.tables.grid import (
    NO_VALUE,
    Grid,
    csv_text,
    epsilon_text,
    interval_text,
    number,
)
from dpbench.comparison.tables.page import Page, tabular
from dpbench.comparison.tables.sweep.cells import CellKey, Key, Mean, Runs, SweepLayout, value_of
from dpbench.learning.metrics.metric import Metric
from dpbench.learning.metrics.paired_t import PairedTest
from dpbench.learning.metrics.registry import metric_of, parse_name
from dpbench.privacy.statement import ACCOUNTANTS
from dpbench.runs.config.search_path import method_name
from dpbench.runs.records.data_name import data_name
from dpbench.runs.records.epsilon import (
    EQUAL_BUDGETS,
    Terms,
    delta_text,
    rounded_up,
    unspent,
)
from dpbench.runs.records.record import Record
from dpbench.system.grouping import grouped
from dpbench.system.validate import is_number

CELLS = "Cells: mean ± standard deviation (number of seeds)."

NOTE = (
    f"{CELLS} Bold: the best mean of the rows on the same data with an "
    "epsilon, where their epsilons agree within 5%, for one delta and unit. An epsilon is that of "
    "one run: it covers neither metrics nor a choice by them, nor statistics that data were "
    "prepared by, such as z-scores."
)

DIFFERENCES = (
    "Differences: mean over common seeds of the row's value minus the baseline's, with its 95% "
    "interval by Student's t (number of seeds). Better and worse: a paired t-test at 5%; "
    "equivalent: shown to differ by less than the margin ({margins}); both with Holm's correction "
    "for all rows beside one of the baseline, those without privacy apart. Undecided with a "
    "reason: the two differ in settings other than those of method, optimizer and schedule, or in "
    "what their epsilons are for, a run diverged, or the search of the one behind may be why. A "
    "dash: the baseline has no row, or several, with the values shown, or the two have no seed in "
    "common that has this number."
)

NOT_TUNED = (
    "Untuned: there is no search of {methods} in this folder. Where one of them is worse, its "
    "settings may be the reason; `dpbench search` finds better ones."
)

OTHER_SEEDS = "Not all seeds are shown, and no test can tell whether some were picked."

BEST = (
    "Of the settings of a row, the one shown has the best {metric} on validation splits, as a mean "
    "over seeds, among those with the most seeds; trials: the settings that were tried."
)

NOT_BEST = (
    "This is not so for {cells}: what was best there has no run on the test set, or no setting was "
    "tried."
)

ONE_SPLIT = (
    "All seeds share one split into training and test rows, whose choice the deviations leave out; "
    "dataset.split_seed=null draws one for each seed."
)


@dataclass(frozen=True)
class SweepTable:
    """The runs of a table by row and column, its title, sentences on runs of the same settings with
    other seeds, and where validation chose a setting, how many were tried and the cells in which
    the one shown is not the best of these."""

    layout: SweepLayout
    runs: Mapping[CellKey, Runs]
    title: str
    left_out: tuple[str, ...] = ()
    tried: Mapping[CellKey, int] = field(default_factory=dict)
    not_best: Sequence[CellKey] = ()

    @property
    def markdown(self) -> str:
        note = " ".join(self._notes())
        return Page(self.title, [self.grid, *self._compared, note]).markdown

    @property
    def latex(self) -> str:
        tables = [Page(self.title, [self.grid]).latex(" ".join(self._notes()))]
        tables += [tabular(grid.heading, grid) for grid in self._compared]
        return "\n\n".join(tables) + "\n"

    def _notes(self) -> Iterator[str]:
        yield NOTE
        if self.layout.baseline:
            labels = zip(self.metric_labels, self.layout.metrics, strict=True)
            margins = (f"{label} {parse_name(name).margin}" for label, name in labels)
            yield DIFFERENCES.format(margins=", ".join(margins))
        tasks = [task_of(record) for record in self._records]
        without = dict.fromkeys(task[0] for task in tasks if not self.layout.trials.get(task))
        if without and len({method for method, *_ in tasks}) > 1:
            yield NOT_TUNED.format(methods=", ".join(map(method_name, without)))
        if self.tried:
            yield BEST.format(metric=self.metric_labels[0])
        if self.not_best:
            shown = ([*self._labels(row), *self._named(column)] for row, column in self.not_best)
            cells = (", ".join(texts) or "the table" for texts in shown)
            yield NOT_BEST.format(cells="; ".join(cells))
        if self.left_out:
            yield f"{OTHER_SEEDS} {' '.join(self.left_out)}"
        if gap := unspent((record.config, record.statement) for record in self._records):
            yield gap
        if any(value_of(r.config, "dataset.split_seed") is not None for r in self._records):
            yield ONE_SPLIT
        for terms in [*self._terms][:1]:
            if named := {*Terms._fields} - {*self._differing}:
                yield f"All epsilons: {terms.text(named)}."

    @property
    def _records(self) -> list[Record]:
        return [record for runs in self.runs.values() for record in runs.records]

    @property
    def metric_labels(self) -> list[str]:
        return [metric_label(name, self._records) for name in self.layout.metrics]

    @cached_property
    def _terms(self) -> set[Terms]:
        return {terms for runs in self.runs.values() if (terms := runs.terms)}

    @cached_property
    def _differing(self) -> list[str]:
        return [name for name in Terms._fields if len({getattr(t, name) for t in self._terms}) > 1]

    @property
    def csv(self) -> str:
        """A line for each row, column and metric; epsilon is empty where none may be shown."""
        numbers = ("metric", "mean", "sd", "n", "epsilon")
        compared = ("difference", "low", "high", "pairs", "verdict") if self.layout.baseline else ()
        head = (*self.layout.rows, *self.layout.columns, *numbers, *Terms._fields, *compared)
        head += ("trials",) if self.tried else ()
        return csv_text(head, self._lines())

    @property
    def grid(self) -> Grid:
        """The table, its best means between **."""
        return Grid("", tuple(self._head()), tuple(tuple(self._texts(row)) for row in self.rows))

    @property
    def _compared(self) -> list[Grid]:
        if not self.layout.baseline:
            return []
        columns = sorted({column for _, column in self._bases}, key=_order)
        cells = [*itertools.product(columns, self.layout.metrics)]
        heads = itertools.product(columns, self.metric_labels)
        rows = (
            (*self._labels(row), *(self._difference((row, at), name) for at, name in cells))
            for row in sorted({row for row, _ in self._bases}, key=_order)
        )
        head = (*self._keys, *(", ".join([*self._named(at), label]) for at, label in heads))
        return [Grid(f"Differences to {method_name(self.layout.baseline)}", head, tuple(rows))]

    @cached_property
    def _bases(self) -> dict[CellKey, CellKey | None]:
        """By cell of another method, the only one of the baseline with its values of the settings
        that are not chosen for each method."""
        keys = (*self.layout.rows, *self.layout.columns)
        values = {cell: dict(zip(keys, (*cell[0], *cell[1]), strict=True)) for cell in self.runs}
        shared = {
            cell: {k: v for k, v in own.items() if k.partition(".")[0] not in CHOSEN_BY_METHOD}
            for cell, own in values.items()
        }
        own = [cell for cell in self.runs if values[cell]["method"] == self.layout.baseline]
        alike = {c: [b for b in own if shared[b] == shared[c]] for c in self.runs if c not in own}
        return {cell: bases[0] if len(bases) == 1 else None for cell, bases in alike.items()}

    def _test(self, cell: CellKey, metric: str) -> PairedTest | None:
        """Of row minus baseline; None without one baseline or without common seeds."""
        base = self._bases.get(cell)
        return base and difference(self._side(cell, metric), self._side(base, metric), metric)

    @cached_property
    def _judged(self) -> dict[tuple[CellKey, str], Judged]:
        together = grouped((base, cell) for cell, base in self._bases.items() if base)
        judged: dict[tuple[CellKey, str], Judged] = {}
        for metric, (base, cells) in itertools.product(self.layout.metrics, together.items()):
            pairs = {c: (self._side(c, metric), self._side(base, metric)) for c in cells}
            judged |= {(c, metric): found for c, found in compare(pairs, metric).items()}
        return judged

    def _difference(self, cell: CellKey, metric: str) -> str:
        """`+0.52 [+0.10, +0.94] (5), better`: difference, interval, common seeds, and verdict."""
        if (found := self._test(cell, metric)) is None:
            return NO_VALUE
        interval = f"{interval_text(found, metric_of(metric).digits)} ({found.n})"
        judged = self._judged.get((cell, metric))
        shown = interval if math.isfinite(found.mean) else NO_VALUE
        return f"{shown}, {judged.words}" if judged else shown

    def _side(self, cell: CellKey, metric: str) -> Side:
        records = self.runs[cell].records
        tuning = tuning_of(records[0], self.layout.trials)
        return Side.of(task_of(records[0])[0], records, metric, tuning)

    @property
    def _keys(self) -> list[str]:
        return [key.rpartition(".")[2] for key in self.layout.rows]

    def _labels(self, row: Key) -> list[str]:
        return [_label(key, value) for key, value in zip(self.layout.rows, row, strict=True)]

    def _named(self, column: Key) -> list[str]:
        named = zip(self.layout.columns, column, strict=True)
        return [_label(key, value, named=True) for key, value in named]

    def _texts(self, row: Key) -> Iterator[str]:
        yield from self._labels(row)
        for column in self.columns:
            runs = self.runs.get((row, column))
            for name in self.layout.metrics:
                text = _text(runs.mean(name), name) if runs and runs.measure(name) else NO_VALUE
                yield f"**{text}**" if ((row, column), name) in self._best else text
            yield self._epsilon(runs) if runs else NO_VALUE
            yield from self._tried((row, column))

    def _epsilon(self, runs: Runs) -> str:
        shown = epsilon_text(runs.epsilon, runs.guarantee)
        varying = [name for name in self._differing if name != "guarantee"]  # marked in any case
        return f"{shown} ({runs.terms.text(varying)})" if runs.terms and varying else shown

    @cached_property
    def _best(self) -> set[tuple[CellKey, str]]:
        """The cells with the best mean, as it is shown, of a column's rows on the same data."""
        alike = grouped(
            ((cell[1], data_name(runs.records[0].config)), (cell, runs))
            for cell, runs in self.runs.items()
        )
        pairs = itertools.product(map(dict, alike.values()), self.layout.metrics)
        return {(cell, name) for rows, name in pairs for cell in _best(rows, name)}

    @cached_property
    def rows(self) -> list[Key]:
        return sorted({row for row, _ in self.runs}, key=_order)

    @cached_property
    def columns(self) -> list[Key]:
        return sorted({column for _, column in self.runs}, key=_order)

    def _head(self) -> Iterator[str]:
        yield from self._keys
        for column in self.columns:
            values = self._named(column)
            trials = ["trials"] if self.tried else []
            for name in (*self.metric_labels, f"epsilon ({ACCOUNTANTS['pld'].label})", *trials):
                yield ", ".join([*values, name])

    def _lines(self) -> Iterator[tuple[str, ...]]:
        for cell in itertools.product(self.rows, self.columns):
            if runs := self.runs.get(cell):
                terms = ("",) * len(Terms._fields)
                if runs.terms:
                    delta, *others, _ = runs.terms
                    terms = (repr(float(runs.epsilon)), delta_text(delta), *map(str, others))
                keys, tried = [*map(str, (*cell[0], *cell[1]))], self._tried(cell)
                about = (*terms, runs.guarantee)
                for name in filter(runs.measure, self.layout.metrics):
                    numbers = _numbers(runs.mean(name), name)
                    yield (*keys, name, *numbers, *about, *self._gap(cell, name), *tried)

    def _tried(self, cell: CellKey) -> list[str]:
        return [str(self.tried.get(cell, 0))] if self.tried else []

    def _gap(self, cell: CellKey, name: str) -> tuple[str, ...]:
        if not self.layout.baseline:
            return ()
        if (found := self._test(cell, name)) is None:
            return ("",) * 5
        low, high = ("" if math.isinf(end) else f"{end:.6g}" for end in found.interval())
        judged = self._judged.get((cell, name))
        return (f"{found.mean:.6g}", low, high, str(found.n), judged.words if judged else "")


def _numbers(mean: Mean, name: str) -> tuple[str, ...]:
    value = delta_text(mean.value) if metric_of(name).is_bound else f"{mean.value:.6g}"
    return value, f"{mean.spread:.6g}", str(mean.n)


def _best(rows: Mapping[CellKey, Runs], name: str) -> set[CellKey]:
    terms = {runs.terms.comparable for runs in rows.values() if runs.terms}
    metric = metric_of(name)
    private = {row: runs for row, runs in rows.items() if not isinstance(runs.epsilon, str)}
    means = {row: runs.mean(name).value for row, runs in private.items()}
    means = {row: value for row, value in means.items() if not math.isnan(value)}
    epsilons = [float(rows[row].epsilon) for row in means]
    if epsilons and max(epsilons) > EQUAL_BUDGETS * min(epsilons):
        return set()
    if metric.better is None or len(means) < 2 or len(terms) > 1:
        return set()
    best = max(means.values(), key=lambda mean: metric.sign * mean)
    shown = _shown(best, metric)
    return {row for row, value in means.items() if _shown(value, metric) == shown}


def metric_label(name: str, records: Iterable[Record]) -> str:
    """`accuracy (%)`, with the group and the split unless it is the test set.

    The losses of regression are squares of the target's unit, and not in nats.
    """
    parts = parse_name(name)
    metric = parts.metric
    split = parts.split if parts.split != "test" else ""
    words = [metric.label, parts.group, split]
    unit = {"percent": " (%)", "nats": " (nats)", "": ""}[metric.unit]
    if metric.unit == "nats" and any("test/rmse" in r.metrics for r in records):
        unit = ""
    return f"{', '.join(filter(None, words))}{unit}"


def _label(key: str, value: Any, named: bool = False) -> str:
    if key == "method":
        return method_name(str(value))
    if value is None:
        return NO_VALUE
    if not is_number(value):
        return str(value)
    return f"{key.rpartition('.')[2]} {value:g}" if named else f"{value:g}"


def _text(mean: Mean, name: str) -> str:
    metric = metric_of(name)
    spread = "" if math.isnan(mean.spread) else f" ± {number(mean.spread, metric.digits)}"
    return f"{_shown(mean.value, metric)}{spread} ({mean.n})"


def _shown(value: float, metric: Metric) -> str:
    """A mean as text: one of upper bounds may only be rounded up."""
    if metric.is_bound and metric.digits is not None and not math.isnan(value):
        return rounded_up(value, metric.digits)
    return number(value, metric.digits)


def _order(key: Key) -> list[tuple[bool, float, str]]:
    return [(not is_number(v), float(v) if is_number(v) else 0.0, str(v)) for v in key]
