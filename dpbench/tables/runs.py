"""The runs that belong in a table, checked, paired with their baselines and put in rows."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dpbench.errors import UserError
from dpbench.metrics.paired import is_paired, pair_with_baseline
from dpbench.records.divergence import DIVERGED
from dpbench.tables.conditions import row_name
from dpbench.tables.spec import TableSpec

IDENTITY = ["dataset", "model", "method", "variant", "seed"]
PRIVACY = ["rdp", "pld", "gdp", "guarantee", "why", "claimed", "delta", "arithmetic"]
NEEDED = [*IDENTITY, "status", *(f"privacy/{name}" for name in PRIVACY)]
CORRECTED = "corrected"
OPTIONAL_METRICS = ("train_set/", "test/mce_min20", "test/mce_last10")
"""How the metrics begin that not all records have."""


@dataclass(frozen=True)
class Row:
    """One row of a table: a method in one of its variants, under a condition, and its runs."""

    condition: str
    method: str
    variant: str
    runs: pd.DataFrame

    @property
    def name(self) -> str:
        """Condition and method, as the published numbers have them."""
        return row_name(self.condition, self.method)

    @property
    def label(self) -> str:
        """The name; a variant that is not the corrected one is always named."""
        return self.name if self.variant == CORRECTED else f"{self.name} ({self.variant})"

    @property
    def diverged(self) -> list[int]:
        """Seeds of the runs that diverged."""
        return self.runs.loc[self.runs["status"] == DIVERGED, "seed"].tolist()

    @property
    def dropped(self) -> list[tuple[int, int]]:
        """By seed, how many gradients were not finite; nothing where nobody counted."""
        if "dropped" not in self.runs.columns:
            return []
        return list(zip(self.runs["seed"].tolist(), self.runs["dropped"].tolist(), strict=True))

    def values(self, metric: str) -> dict[int, float]:
        """A metric by seed, NaN for a diverged run; without the runs that do not have it."""
        if metric not in self.runs.columns:
            return {}
        lacking = (self.runs["status"] != DIVERGED) & self.runs[metric].isna()
        having = self.runs[~lacking] if metric.startswith(OPTIONAL_METRICS) else self.runs
        return dict(zip(having["seed"].tolist(), having[metric].tolist(), strict=True))


def rows_of(spec: TableSpec, runs: pd.DataFrame) -> list[Row]:
    """The rows of the table in the specification's order, corrected variants first.

    runs: one row per run with the columns NEEDED, `test/...` metrics and, where the table has
    conditions, the label of its `condition`. Runs of other methods, seeds or conditions are left
    out; a method without runs has an empty row. All metrics of a diverged run are NaN. Raises
    UserError where runs of several data sets or models are mixed under one condition, where a run
    is there twice, and where a column of the table has no metric.
    """
    if "condition" not in runs.columns:
        runs = runs.assign(condition="")
    return [
        row
        for condition in spec.conditions
        for row in _rows_under(spec, condition, runs[runs["condition"] == condition])
    ]


def _rows_under(spec: TableSpec, condition: str, runs: pd.DataFrame) -> list[Row]:
    chosen = _chosen(spec, runs)
    paired = any(is_paired(column.metric) for column in spec.columns)
    if paired and len(chosen):
        a, b = spec.groups
        chosen = pair_with_baseline(chosen, (a, b), spec.baseline)
    metrics = [column.metric for column in spec.columns]
    if chosen.empty:
        chosen = chosen.reindex(columns=[*NEEDED, *metrics])
    _require(chosen, [name for name in metrics if not name.startswith(OPTIONAL_METRICS)])
    return [row for method in spec.methods for row in _variants(condition, method, chosen)]


def _chosen(spec: TableSpec, runs: pd.DataFrame) -> pd.DataFrame:
    if runs.empty:
        return pd.DataFrame(columns=NEEDED)
    _require(runs, NEEDED)
    wanted = runs["method"].isin([*spec.methods, spec.baseline]) & runs["seed"].isin(spec.seeds)
    chosen = runs[wanted].sort_values(IDENTITY).reset_index(drop=True)
    for name in ("dataset", "model"):
        if chosen[name].nunique() > 1:
            raise UserError(f"A table is about one {name}, not {', '.join(chosen[name].unique())}.")
    for twice in chosen.loc[chosen.duplicated(IDENTITY), IDENTITY].to_dict("records"):
        raise UserError(f"There are two runs of {twice}; say which one belongs in the table.")
    return _without_diverged_metrics(chosen)


def _without_diverged_metrics(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with NaN for every metric of a diverged one: its last numbers mean nothing."""
    measured = [name for name in runs.columns if name.startswith(("test/", *OPTIONAL_METRICS))]
    metrics = runs[measured].astype(float).mask(runs["status"] == DIVERGED, np.nan)
    return runs.assign(**{name: metrics[name] for name in measured})


def _variants(condition: str, method: str, runs: pd.DataFrame) -> list[Row]:
    mine = runs[runs["method"] == method]
    names = sorted(mine["variant"].unique(), key=lambda name: (name != CORRECTED, name))
    return [
        Row(condition, method, name, mine[mine["variant"] == name]) for name in names or [CORRECTED]
    ]


def _require(runs: pd.DataFrame, names: list[str]) -> None:
    absent = [name for name in names if name not in runs.columns]
    if absent:
        raise UserError(f"The runs have no column {', '.join(absent)}.")
