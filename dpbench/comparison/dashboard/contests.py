"""Who is compared: the methods tested on one data set and model at about the same budget; and how
they stand: intervals, differences to a baseline, ranks and verdicts."""

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpbench.comparison.compare.pairs import NOT_MEASURED, against, difference, ranks, why_none
from dpbench.comparison.compare.side import Side
from dpbench.comparison.compare.verdict import Judged
from dpbench.comparison.dashboard.representative import (
    Candidate,
    Group,
    Interval,
    budgets_of,
    choose,
    groups_of,
    offered,
    ranked_by,
)
from dpbench.comparison.dashboard.run_row import ReportedRun, TableRow, seven_digits
from dpbench.learning.metrics.derived import WORST_GROUP
from dpbench.learning.metrics.registry import metric_of, parse_name
from dpbench.learning.metrics.students_t import Estimate, paired
from dpbench.runs.config.search_path import data_kind
from dpbench.system.grouping import grouped

SAME_BUDGET = 1.15
"""Epsilons that are compared differ by at most this factor: with equal noise multipliers, methods
with noisy counts have slightly larger ones."""

BASELINES = ("dpsgd", "sgd")
"""Methods to compare the others with: the first of these in a contest."""

ECE = "test/ece"

FENCE = 5.0
"""Means that are further from their median than this many times the usual distance, or the usual
interval, do not set the scale."""


class BudgetRange(NamedTuple):
    """The lowest and the highest epsilon in a contest, and the delta of all."""

    low: float
    high: float
    delta: float | None


@dataclass(frozen=True)
class Contest:
    """The candidates on one data set and model, at one budget or without any epsilon.

    kind: of the data. metric: the one that ranks, "" for none.
    """

    facet: str
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

    @cached_property
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

    @cached_property
    def columns(self) -> list[str]:
        """The metrics on the board: the one that ranks, and what of the worst group and of
        calibration was measured."""
        more = (n for n in (WORST_GROUP, ECE) if any(c.group.by_seed(n) for c in self.candidates))
        return [*dict.fromkeys(filter(None, (self.metric, *more)))]

    @property
    def unit(self) -> tuple[str, str]:
        """What its comparisons take as random, one and several."""
        return (self.baseline or self.candidates[0]).group.unit

    @property
    def drawn(self) -> str:
        """The metric of the first column, by which intervals are drawn; "" without one."""
        return next(iter(self.columns), "")

    @cached_property
    def intervals(self) -> dict[tuple[str, str], Interval]:
        """The means of each method and column that has one."""
        cells = itertools.product(self.candidates, self.columns)
        found = {(one.method, name): one.group.interval(name) for one, name in cells}
        return {cell: interval for cell, interval in found.items() if interval}

    @cached_property
    def gaps(self) -> dict[tuple[str, str], Estimate]:
        """The differences to the baseline, paired by seed, of each other method and column."""
        if (baseline := self.baseline) is None:
            return {}
        found = {
            (one.method, name): paired(one.group.by_seed(name), baseline.group.by_seed(name))
            for one, name in itertools.product(self.candidates, self.columns)
            if one is not baseline and (one.method, name) in self.intervals
        }
        return {
            cell: Estimate(seven_digits(gap.mean), gap.half and seven_digits(gap.half), gap.n)
            for cell, gap in found.items()
            if gap
        }

    def forest(self, method: str) -> Interval | None:
        """The difference to the baseline, for a forest plot; on a board without one, the mean."""
        own = self.intervals.get((method, self.drawn))
        if own is None or self.baseline is None:
            return own
        if method == self.baseline.method:
            return Interval(0.0)
        if (gap := self.gaps.get((method, self.drawn))) is None:
            return None
        ends = (None, None) if gap.half is None else (gap.mean - gap.half, gap.mean + gap.half)
        return Interval(gap.mean, *ends)

    @cached_property
    def span(self) -> list[float]:
        """The ends of the axis for `forest`."""
        return span([drawn for c in self.ranked if (drawn := self.forest(c.method))])

    @cached_property
    def ranks(self) -> dict[str, tuple[int, int]]:
        """The first and the last rank that each method with one may have."""
        return ranks(self.sides, self.metric)

    def standing(self, method: str) -> str:
        """Whether a method is the first, or may be, or is shown to be behind another."""
        if method not in self.ranks:
            return "unranked"
        if method == (best := next(iter(self.sides))):
            return "first"
        if self.ranks[method][0] > 1:
            return "behind"
        test = difference(self.sides[method], self.sides[best], self.metric)
        return "tied" if test and test.is_possible else "unknown"


def span(intervals: Sequence[Interval]) -> list[float]:
    """The ends of the axis for means and intervals, which a few outliers do not stretch."""
    if not intervals:
        return [0.0, 0.0]
    means = np.array([one.mean for one in intervals])
    widths = [high - low for _, low, high, _ in intervals if low is not None and high is not None]
    middle = np.median(means)
    usual = max(np.median(np.abs(means - middle)), np.median(widths) if widths else 0.0)
    low, high = middle - FENCE * usual, middle + FENCE * usual
    inside = [one for one in intervals if low <= one.mean <= high]
    ends = [end for one in inside for end in (one.mean, one.low, one.high) if end is not None]
    clipped = np.clip(ends, low, high)
    return [seven_digits(clipped.min()), seven_digits(clipped.max())]


def contests(runs: Iterable[ReportedRun]) -> list[Contest]:
    """The contests by data set and model, then by budget."""
    by_facet = grouped((run.row["facet"], run) for run in runs if run.row["dataset"] is not None)
    return [
        Contest(
            facet,
            data_kind(inside[0].row["dataset"]),
            budget,
            tuple(candidates),
            ranked_by([candidate.group for candidate in candidates]),
        )
        for facet, inside in sorted(by_facet.items(), key=lambda pair: pair[0])
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
        own = [other for other in others if other.first.budget in budgets]
        settings = {other.first.setting for other in own}
        beside = [
            other
            for other in others
            if other.is_free
            and other.first.row["protocol"] in protocols
            and other.first.setting not in settings
        ]
        yield budget, _candidates([*groups, *own, *beside], validated, widths)


def _clusters(private: Iterable[Group]) -> Iterator[tuple[BudgetRange, list[Group]]]:
    ordered = sorted(private, key=lambda group: float(group.epsilon))
    for delta, groups in grouped((group.first.delta, group) for group in ordered).items():
        while groups:
            low = float(groups[0].epsilon)
            inside = [g for g in groups if float(g.epsilon) <= low * SAME_BUDGET]
            groups = groups[len(inside) :]
            yield BudgetRange(low, float(inside[-1].epsilon), delta), inside


def _candidates(
    groups: Iterable[Group], validated: Iterable[Group], budgets: Mapping[str, int]
) -> list[Candidate]:
    """One candidate per method. What was chosen on the test set is compared only with its like.

    budgets: how many each curve has.
    """
    tested, tried = _by_method(groups), defaultdict(list, _by_method(validated))
    tables = ({p.table for group in same for p in group.first.places} for same in tested.values())
    shared = Counter(name for names in tables for name in names)
    chosen = [choose(tested[m], tried[m], shared, budgets) for m in sorted(tested)]
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
