"""Who is compared: the methods tested on one data set and model at about the same budget."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from dpbench.comparison.compare.pairs import NOT_MEASURED, against, why_none
from dpbench.comparison.compare.side import Side
from dpbench.comparison.compare.verdict import Judged
from dpbench.comparison.dashboard.representative import (
    Candidate,
    Group,
    budgets_of,
    choose,
    groups_of,
    offered,
    ranked_by,
)
from dpbench.comparison.dashboard.run_row import ReportedRun, TableRow
from dpbench.learning.metrics.registry import metric_of, parse_name
from dpbench.runs.config.search_path import data_kind
from dpbench.system.grouping import grouped

SAME_BUDGET = 1.15
"""Epsilons that are compared differ by at most this factor: with equal noise multipliers, methods
with noisy counts have slightly larger ones."""

BASELINES = ("dpsgd", "sgd")
"""Methods to compare the others with: the first of these in a contest."""


class BudgetRange(NamedTuple):
    """The lowest and the highest epsilon in a contest, and the delta and adjacency of all."""

    low: float
    high: float
    delta: float | None
    adjacency: str


@dataclass(frozen=True)
class Contest:
    """The candidates on one data set and model, at one budget or without any epsilon.

    task: the data set and the model. kind: of the data. metric: the one that ranks, "" for none.
    """

    facet: str
    task: tuple[str, str]
    kind: str
    budget: BudgetRange | None
    candidates: tuple[Candidate, ...]
    metric: str

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics to compare by: the one that ranks, then those that two have measured."""
        counts = Counter(
            name for c in self.candidates for name in offered() if c.group.by_seed(name)
        )
        others = (name for name in offered() if counts[name] > 1)
        return [*dict.fromkeys(filter(None, (self.metric, *others)))]

    def by(self, metric: str) -> "Contest":
        """The same candidates, whatever they were chosen by, compared by another metric."""
        return replace(self, metric=metric)

    @property
    def baseline(self) -> Candidate | None:
        by_method = {candidate.method: candidate for candidate in self.candidates}
        return next((by_method[name] for name in BASELINES if name in by_method), None)

    @property
    def ranked(self) -> list[Candidate]:
        """Methods with a rank first, the best mean first, those without a mean last."""
        return sorted(self.candidates, key=self._place)

    def _place(self, candidate: Candidate) -> tuple:
        mean = candidate.group.mean(self.metric)
        value = -metric_of(self.metric).sign * mean.mean if mean else 0.0
        return not candidate.is_ranked, mean is None, value, candidate.method

    @cached_property
    def sides(self) -> dict[str, Side]:
        """The methods with a rank that have a mean, the best first."""
        compared = (c for c in self.ranked if c.is_ranked and c.group.mean(self.metric))
        return {c.method: c.side(self.metric) for c in compared}

    @cached_property
    def judged(self) -> dict[str, Judged]:
        """The verdicts on the other methods beside the baseline."""
        baseline, metric = self.baseline, self.metric
        if baseline is None or baseline.method not in self.sides:
            return {}
        return against(self.sides, baseline.method, metric, baseline.second_sides(metric))

    @property
    def is_searched(self) -> bool:
        """Whether a search chose the settings of the baseline."""
        return self.baseline is not None and bool(self.baseline.tuning.trials)

    @cached_property
    def no_headroom(self) -> str:
        """Why no method is shown to be able to win here; "" if one is."""
        baseline, metric = self.baseline, self.metric
        if baseline is None or baseline.method not in self.sides:
            return NOT_MEASURED
        values = {method: side.values for method, side in self.sides.items()}
        base, free = values.pop(baseline.method), (c for c in self.candidates if c.group.is_free)
        return why_none(
            base,
            [c.side(metric).values for c in free if c.group.by_seed(metric)],
            [*values.values()],
            metric_of(metric).sign,
            parse_name(metric).margin.at(statistics.fmean(base.values())),
        )


def contests(runs: Iterable[ReportedRun]) -> list[Contest]:
    """The contests by data set and model, then by budget."""
    by_facet = grouped((run.row["facet"], run) for run in runs if run.row["dataset"] is not None)
    return [
        Contest(
            facet,
            (row["dataset"], row["model"]),
            data_kind(row["dataset"]),
            budget,
            tuple(candidates),
            ranked_by([candidate.group for candidate in candidates]),
        )
        for facet, inside in sorted(by_facet.items(), key=lambda pair: pair[0])
        for row in [inside[0].row]
        for budget, candidates in _budgets(inside)
    ]


def _budgets(runs: list[ReportedRun]) -> Iterator[tuple[BudgetRange | None, list[Candidate]]]:
    tested = groups_of(run for run in runs if not run.validated)
    validated = groups_of(run for run in runs if run.validated)
    by_reason = grouped((isinstance(group.epsilon, str), group) for group in tested)
    private, others = by_reason.get(False, []), by_reason.get(True, [])
    widths = budgets_of(runs)
    if not private and others:
        yield None, _candidates(others, validated, widths)
    for budget, groups in sorted(_clusters(private), key=lambda pair: pair[0]):
        budgets = {group.first.budget for group in groups}
        protocols = {group.first.row["protocol"] for group in groups}
        beside = [
            other
            for other in others
            if other.first.budget in budgets
            or (other.is_free and other.first.row["protocol"] in protocols)
        ]
        yield budget, _candidates([*groups, *beside], validated, widths)


def _clusters(private: Iterable[Group]) -> Iterator[tuple[BudgetRange, list[Group]]]:
    """Groups of one delta and about the same epsilon."""
    ordered = sorted(private, key=lambda group: float(group.epsilon))
    for delta, groups in grouped((group.first.delta, group) for group in ordered).items():
        while groups:
            low = float(groups[0].epsilon)
            inside = [g for g in groups if float(g.epsilon) <= low * SAME_BUDGET]
            groups = groups[len(inside) :]
            high, adjacency = float(inside[-1].epsilon), inside[0].first.adjacency
            yield BudgetRange(low, high, delta, adjacency), inside


def _candidates(
    groups: Iterable[Group], validated: Iterable[Group], budgets: Mapping[str, int]
) -> list[Candidate]:
    """One candidate per method. What was chosen on the test set is compared only with its like.

    budgets: how many each curve has.
    """
    tested, tried = _by_method(groups), defaultdict(list, _by_method(validated))
    tables = ({p.table for group in same for p in group.first.places} for same in tested.values())
    shared = Counter(name for names in tables for name in names)
    chosen = [choose(m, tested[m], tried[m], shared, budgets) for m in sorted(tested)]
    strict = any(one.is_honest for one in chosen)
    return [
        replace(
            one,
            alike=tuple(g for g in groups if g.first.setting == one.group.first.setting),
            fair=one.is_honest or not strict,
            second_searches=tuple(g for g in groups if _is_second_search(g, one.place)),
        )
        for one in chosen
        for groups in [tested[one.method]]
    ]


def _is_second_search(group: Group, place: TableRow | None) -> bool:
    return place is not None and any(
        (other.table, other.row.condition, other.row.again)
        == (place.table, place.row.condition, place.row.method)
        for other in group.first.places
    )


def _by_method(groups: Iterable[Group]) -> dict[str, list[Group]]:
    return grouped((group.first.row["method"], group) for group in groups)
