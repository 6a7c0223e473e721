"""Selects and checks the runs of a table, pairs them with their baselines and forms rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, cast

from dpbench.comparison.compare.side import Budget, mean_by
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.edition import Edition
from dpbench.learning.metrics.derived import WORST_GROUP, is_paired, pair_with_baseline, value_of
from dpbench.privacy.guarantee import CORRECTED
from dpbench.privacy.statement import ACCOUNTANTS, Statement
from dpbench.runs.config.search_path import with_variant
from dpbench.runs.records.divergence import DIVERGED
from dpbench.runs.records.epsilon import largest_epsilon
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError
from dpbench.system.grouping import grouped

IDENTITY = ("dataset", "model", "method", "variant", "seed")
_identity = itemgetter(*IDENTITY)
PRIVACY = (*ACCOUNTANTS, "guarantee", "why", "claimed", "delta", "arithmetic")
OPTIONAL_METRICS = ("train_set/", "test/mce_min20", "test/mce_last10")
"""Prefixes of the metrics that some records lack."""

FlatRun = Mapping[str, Any]
"""A run by the names of `records.frames.flat`, with its condition and its method or arm."""


class PlacedRecord(NamedTuple):
    """A record and its place in a table: the condition, and the method or arm."""

    condition: str
    method: str
    record: Record


@dataclass(frozen=True)
class Row:
    """One row of a table: a method in one of its variants, under a condition, and its runs."""

    condition: str
    method: str
    variant: str
    runs: Sequence[FlatRun] = ()
    unit: Callable[[int], int] = int
    """what comparisons take as random, by seed (`TableFile.unit`)"""

    @property
    def name(self) -> str:
        """Condition and method, as in the published numbers."""
        return row_name(self.condition, self.method)

    @property
    def label(self) -> str:
        """The name, with the variant unless it is the corrected one."""
        return with_variant(self.name, self.variant)

    @property
    def diverged(self) -> list[int]:
        return [run["seed"] for run in self.runs if run["status"] == DIVERGED]

    @property
    def nonfinite(self) -> list[tuple[int, int]]:
        """The numbers of non-finite gradients, by seed, where they were counted."""
        return [(run["seed"], run["nonfinite"]) for run in self.runs if "nonfinite" in run]

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The largest epsilon of its runs; none where they have no statement of privacy. The terms
        of all rows are those of the table."""
        statements = [
            cast(Statement, {name: run[f"privacy/{name}"] for name in ("pld", "guarantee")})
            for run in self.runs
            if "privacy/pld" in run
        ]
        return (Budget(largest_epsilon(statements, "pld")),) if statements else ()

    def values(self, metric: str) -> dict[int, float]:
        """A metric by seed, NaN for a diverged run; runs without an optional metric are omitted."""
        always = not metric.startswith(OPTIONAL_METRICS)
        return {
            run["seed"]: run[metric]
            for run in self.runs
            if metric in run
            and (always or run["status"] == DIVERGED or not math.isnan(run[metric]))
        }

    def compared(self, metric: str) -> dict[int, float]:
        """What comparisons pair: a metric by seed, or where a row has several searches, by search
        its mean over the seeds."""
        return mean_by(self.unit, self.values(metric))


def rows_of(edition: Edition, runs: Sequence[FlatRun]) -> list[Row]:
    """The rows of the table in the specification's order, corrected variants first.

    runs: see `build_table`; those of no row are left out, a method without runs has an empty row,
    and all metrics of a diverged run are NaN. Raises UserError for runs of several data sets or
    models under one condition, for duplicates, and for a column without a metric.
    """
    names = dict.fromkeys((name for run in runs for name in run), math.nan)
    complete = ({**names, "condition": "", **run} for run in runs)
    by_condition = grouped((run["condition"], run) for run in complete)
    return [
        row
        for condition in edition.labels
        for row in _rows_under(edition, condition, by_condition.get(condition, []))
    ]


def _rows_under(edition: Edition, condition: str, runs: Sequence[FlatRun]) -> list[Row]:
    selected = _selected(edition, runs)
    metrics = [column.metric for column in edition.columns]
    if any(map(is_paired, metrics)) and selected:
        a, b = edition.groups
        selected = pair_with_baseline(selected, (a, b), edition.table.baseline)
    if WORST_GROUP in metrics:
        selected = [{WORST_GROUP: value_of(run, WORST_GROUP), **run} for run in selected]
    needed = [name for name in metrics if not name.startswith(OPTIONAL_METRICS)]
    if missing := [name for name in needed if selected and name not in selected[0]]:
        raise UserError(f"The runs have no column {', '.join(missing)}.")
    unit = edition.table.unit
    return [
        Row(condition, method, variant, of_variant, unit)
        for method in edition.table.methods
        for variant, of_variant in _variants([run for run in selected if run["method"] == method])
    ]


def _selected(edition: Edition, runs: Sequence[FlatRun]) -> list[FlatRun]:
    file = edition.table
    methods = {*file.methods, file.baseline}
    selected = [run for run in runs if run["method"] in methods and run["seed"] in file.seeds]
    selected.sort(key=_identity)
    for name in () if file.has_arms else ("dataset", "model"):
        if len(values := dict.fromkeys(run[name] for run in selected)) > 1:
            raise UserError(f"A table is about one {name}, not {', '.join(values)}.")
    for one, other in pairwise(map(_identity, selected)):
        if one == other:
            found = dict(zip(IDENTITY, one, strict=True))
            raise UserError(f"There are two runs of {found}: leave one out.")
    return [_without_diverged_metrics(run) for run in selected]


def _without_diverged_metrics(run: FlatRun) -> FlatRun:
    """A run with NaN for all metrics if it diverged, as its last values are meaningless."""
    if run["status"] != DIVERGED:
        return run
    metrics = ("test/", *OPTIONAL_METRICS)
    return {k: math.nan if k.startswith(metrics) else value for k, value in run.items()}


def _variants(runs: Sequence[FlatRun]) -> list[tuple[str, list[FlatRun]]]:
    by_variant = grouped((run["variant"], run) for run in runs) or {CORRECTED: []}
    return sorted(by_variant.items(), key=lambda pair: (pair[0] != CORRECTED, pair[0]))
