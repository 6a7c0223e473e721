"""Selects and checks the runs of a table, pairs them with their baselines and forms rows."""

import functools
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from dpbench.comparison.compare.side import Budget
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.edition import Edition
from dpbench.learning.metrics.derived import (
    WORST_GROUP,
    is_paired,
    pair_with_baseline,
    with_worst_group,
)
from dpbench.privacy.guarantee import CORRECTED
from dpbench.privacy.statement import ACCOUNTANTS, Statement
from dpbench.runs.config.search_path import with_variant
from dpbench.runs.records.divergence import DIVERGED
from dpbench.runs.records.epsilon import largest_epsilon
from dpbench.system.errors import UserError
from dpbench.system.grouping import grouped

IDENTITY = ["dataset", "model", "method", "variant", "seed"]
PRIVACY = [*ACCOUNTANTS, "guarantee", "why", "claimed", "delta", "arithmetic"]
REQUIRED = [*IDENTITY, "status", *(f"privacy/{name}" for name in PRIVACY)]
OPTIONAL_METRICS = ("train_set/", "test/mce_min20", "test/mce_last10")
"""Prefixes of the metrics that some records lack."""


@dataclass(frozen=True)
class Row:
    """One row of a table: a method in one of its variants, under a condition, and its runs.

    search_number: of a seed, that of the search whose choice its run takes; None where all runs
    have one setting.
    """

    condition: str
    method: str
    variant: str
    runs: pd.DataFrame
    search_number: Callable[[int], int] | None = None

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
        """Seeds of the runs that diverged."""
        return self.runs.loc[self.runs["status"] == DIVERGED, "seed"].tolist()

    @property
    def nonfinite(self) -> list[tuple[int, int]]:
        """Pairs of seed and number of non-finite gradients; empty where they were not counted."""
        if "nonfinite" not in self.runs.columns:
            return []
        return list(zip(self.runs["seed"].tolist(), self.runs["nonfinite"].tolist(), strict=True))

    @functools.cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """The largest epsilon of its runs; none where they have no statement of privacy. The terms
        of all rows are those of the table."""
        columns = [f"privacy/{name}" for name in ("pld", "guarantee")]
        if self.runs.empty or not {*columns} <= {*self.runs.columns}:
            return ()
        pairs = self.runs[columns].itertuples(index=False)
        statements = [cast(Statement, {"pld": pld, "guarantee": level}) for pld, level in pairs]
        return (Budget(largest_epsilon(statements, "pld")),)

    def values(self, metric: str) -> dict[int, float]:
        """A metric by seed, NaN for a diverged run; runs without an optional metric are omitted."""
        if metric not in self._cache:
            self._cache[metric] = self._selected(metric)
        return dict(self._cache[metric])

    def compared(self, metric: str) -> dict[int, float]:
        """What comparisons pair: a metric by seed, or by search its mean over the seeds, since the
        search is the random unit where there are several."""
        values = self.values(metric)
        if self.search_number is None:
            return values
        by_search = grouped((self.search_number(seed), value) for seed, value in values.items())
        return {number: statistics.fmean(means) for number, means in by_search.items()}

    @functools.cached_property
    def _cache(self) -> dict[str, dict[int, float]]:
        """Values by metric: every pair of rows needs them, and pandas is slow."""
        return {}

    @functools.cached_property
    def _seeds(self) -> list[int]:
        return self.runs["seed"].tolist()

    def _selected(self, metric: str) -> dict[int, float]:
        if metric not in self.runs.columns:
            return {}
        values = dict(zip(self._seeds, self.runs[metric].tolist(), strict=True))
        if not metric.startswith(OPTIONAL_METRICS):
            return values
        there = {*self.diverged, *(seed for seed, value in values.items() if not pd.isna(value))}
        return {seed: value for seed, value in values.items() if seed in there}


def rows_of(edition: Edition, runs: pd.DataFrame) -> list[Row]:
    """The rows of the table in the specification's order, corrected variants first.

    runs: one row per run with the columns REQUIRED, `test/...` metrics and, where the table has
    conditions, the label of its `condition`. Runs of other methods, seeds or conditions are left
    out; a method without runs has an empty row. All metrics of a diverged run are NaN. Raises
    UserError where runs of several data sets or models are mixed under one condition, for
    duplicate runs, and where a column of the table has no metric.
    """
    if "condition" not in runs.columns:
        runs = runs.assign(condition="")
    return [
        row
        for condition in edition.conditions
        for row in _rows_under(edition, condition, runs[runs["condition"] == condition])
    ]


def _rows_under(edition: Edition, condition: str, runs: pd.DataFrame) -> list[Row]:
    selected = _selected(edition, runs)
    paired = any(is_paired(column.metric) for column in edition.columns)
    if paired and len(selected):
        a, b = edition.groups
        selected = pair_with_baseline(selected, (a, b), edition.file.baseline)
    metrics = [column.metric for column in edition.columns]
    if WORST_GROUP in metrics:
        selected = with_worst_group(selected)
    if selected.empty:
        selected = selected.reindex(columns=[*REQUIRED, *metrics])
    _require(selected, [name for name in metrics if not name.startswith(OPTIONAL_METRICS)])
    numbered = edition.file.search_number if edition.file.searches > 1 else None
    return [
        row for m in edition.file.methods for row in _variants(condition, m, selected, numbered)
    ]


def _selected(edition: Edition, runs: pd.DataFrame) -> pd.DataFrame:
    if runs.empty:
        return pd.DataFrame(columns=REQUIRED)
    _require(runs, REQUIRED)
    file = edition.file
    in_table = runs["method"].isin([*file.methods, file.baseline]) & runs["seed"].isin(file.seeds)
    selected = runs[in_table].sort_values(IDENTITY).reset_index(drop=True)
    for name in () if file.has_arms else ("dataset", "model"):
        values = selected[name].unique()
        if len(values) > 1:
            raise UserError(f"A table is about one {name}, not {', '.join(values)}.")
    for duplicate in selected.loc[selected.duplicated(IDENTITY), IDENTITY].to_dict("records"):
        raise UserError(f"There are two runs of {duplicate}: leave one out.")
    return _without_diverged_metrics(selected)


def _without_diverged_metrics(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with NaN for all metrics of diverged ones, whose last values are meaningless."""
    names = [name for name in runs.columns if name.startswith(("test/", *OPTIONAL_METRICS))]
    metrics = runs[names].astype(float).mask(runs["status"] == DIVERGED, np.nan)
    return runs.assign(**{name: metrics[name] for name in names})


def _variants(
    condition: str, method: str, runs: pd.DataFrame, numbered: Callable[[int], int] | None
) -> list[Row]:
    runs = runs[runs["method"] == method]
    names = sorted(runs["variant"].unique(), key=lambda name: (name != CORRECTED, name))
    return [
        Row(condition, method, name, runs[runs["variant"] == name], numbered)
        for name in names or [CORRECTED]
    ]


def _require(runs: pd.DataFrame, names: list[str]) -> None:
    missing = [name for name in names if name not in runs.columns]
    if missing:
        raise UserError(f"The runs have no column {', '.join(missing)}.")
