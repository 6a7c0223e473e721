"""Chooses the setting that represents a method: the only one, by validation, by table, or best."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dpbench.dashboard.run_row import ReportedRun
from dpbench.metrics.registry import OFFERED, RANKED_BY, added_metrics, parse_name
from dpbench.metrics.students_t import Estimate, estimate
from dpbench.metrics.worst_group import WORST_GROUP, value_of

TABLE = re.compile(r"tables/([\w-]+)\.records\.jsonl")
"""The records of a table, whose name has a mark if it is not at the paper's scale."""


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed; of several with the same seed, the first."""

    runs: tuple[ReportedRun, ...]

    @property
    def first(self) -> ReportedRun:
        return self.runs[0]

    @property
    def name(self) -> str:
        return self.first.row["group"]

    @property
    def diverged(self) -> int:
        return sum(run.row["status"] != "complete" for run in self.runs)

    def by_seed(self, metric: str) -> dict[str, float]:
        """The metric of each run that measured it, by seed."""
        if metric == WORST_GROUP:
            worst = {run.row["seed"]: value_of(run.metrics, metric) for run in self.runs}
            return {seed: value for seed, value in worst.items() if not math.isnan(value)}
        return {r.row["seed"]: r.metrics[metric] for r in self.runs if metric in r.metrics}

    def mean(self, metric: str) -> Estimate | None:
        """The metric's mean over seeds; None if a run diverged, or none has measured it."""
        return None if self.diverged else estimate([*self.by_seed(metric).values()])

    @cached_property
    def epsilon(self) -> float | str:
        """The epsilon by PLD, else by RDP, or the reason why there is none."""
        axis = self.first.row["axis"]
        return axis["rdp"] if axis["pld"] == "not computed" else axis["pld"]

    @property
    def table(self) -> str | None:
        """The table that the records belong to, if any."""
        match = TABLE.match(self.first.source)
        return match[1] if match else None


def groups_of(runs: Iterable[ReportedRun]) -> list[Group]:
    """The groups of runs, each seed once."""
    by_group: dict[str, dict[str, ReportedRun]] = {}
    for run in runs:
        by_group.setdefault(run.row["group"], {}).setdefault(run.row["seed"], run)
    return [Group(tuple(by_seed.values())) for by_seed in by_group.values()]


def ranked_by(groups: Sequence[Group], split: str = "test") -> str | None:
    """The metric that ranks groups: the first of RANKED_BY that any has measured."""
    measured = {name for group in groups for run in group.runs for name in run.metrics}
    return next((f"{split}/{m}" for m in RANKED_BY if f"{split}/{m}" in measured), None)


def offered() -> list[str]:
    """The metrics of the test split that methods may be compared by, in their order."""
    added = (name for name, metric in added_metrics().items() if metric.better)
    return [f"test/{name}" for name in (*OFFERED, *added)]


def sign_of(metric: str) -> int:
    """1 if a larger value of the metric is better, else -1."""
    known = parse_name(metric).metric
    if known is None:
        raise KeyError(metric)
    return known.sign


class Choice(NamedTuple):
    """The group that represents a method, in words how it was chosen, and whether it was for its
    results on the test set, which makes its method look too good."""

    group: Group
    how: str
    on_test: bool = False


def choose(
    candidates: Sequence[Group], validated: Sequence[Group], shared: Mapping[str, int]
) -> Choice:
    """Choose among the groups of a method.

    validated: those that evaluated a validation split. shared: how many methods each table has
    among those that are compared.
    """
    settings = {group.first.setting for group in candidates}
    if len(settings) == 1:
        all_tried = {group.first.setting for group in validated}
        which = "of" if settings <= all_tried else "none of the"
        told = f"only one tested, {which} {len(all_tried)} tried on validation"
        how = "only setting" if all_tried <= settings else told
        return Choice(_best(candidates, "test"), how)
    tried = [group for group in validated if group.first.setting in settings]
    if tried:
        setting = _best(tried, "validation").first.setting
        chosen = [group for group in candidates if group.first.setting == setting]
        return Choice(_best(chosen, "test"), _how(setting, tried, validated, len(settings)))
    if tables := {group.table for group in candidates if group.table}:
        unmarked_first = sorted(tables, key=lambda name: ("-" in name, name))
        table = max(unmarked_first, key=lambda name: shared[name])
        rows = [group for group in candidates if group.table == table]
        plainest = min(rows, key=lambda group: (group.first.changes, group.name))
        one_of = "" if len(rows) == 1 else f"plainest of {len(rows)} "
        return Choice(plainest, f"{one_of}setting{'s' if one_of else ''} of {table}")
    how = f"best of {len(candidates)} on the test set"
    return Choice(_best(candidates, "test"), how, on_test=True)


def _how(
    setting: str, tried: Sequence[Group], validated: Sequence[Group], number_tested: int
) -> str:
    """How a setting was chosen on validation. tried: of the validated ones, those also tested."""
    both, all_tried = ({group.first.setting for group in groups} for groups in (tried, validated))
    if _best(validated, "validation").first.setting != setting:
        return f"best on validation of {len(both)} tested, of {len(all_tried)} tried"
    if len(all_tried) == 1:
        return f"only one tried on validation, of {number_tested} tested"
    return f"best of {len(all_tried)} on validation"


def _best(groups: Sequence[Group], split: str) -> Group:
    """The group with the best mean; those without a mean come last."""
    metric = ranked_by(groups, split)
    means = [(group.mean(metric) if metric else None, group) for group in groups]
    ranked = [(sign_of(str(metric)) * m.mean, -i, g) for i, (m, g) in enumerate(means) if m]
    return max(ranked)[2] if ranked else groups[0]
