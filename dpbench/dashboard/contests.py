"""Who is compared: the methods tested on one data set and model at about the same budget."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from dpbench.config.names import data_kind
from dpbench.dashboard.representative import (
    Choice,
    Group,
    choose,
    groups_of,
    offered,
    ranked_by,
    sign_of,
)
from dpbench.dashboard.run_row import ReportedRun
from dpbench.metrics.students_t import estimate
from dpbench.records.epsilon import NOT_PRIVATE
from dpbench.system.grouping import grouped

SAME_BUDGET = 1.15
"""Epsilons that are compared differ by at most this factor: with equal noise multipliers, methods
with noisy counts have slightly larger ones."""

BASELINES = ("dpsgd", "sgd")
"""Methods to compare the others with: the first of these in a contest."""


class Budget(NamedTuple):
    """The lowest and the highest epsilon in a contest, and the delta and adjacency of all."""

    low: float
    high: float
    delta: float | None
    adjacency: str

    @property
    def terms(self) -> tuple[float | None, str]:
        """What the epsilons of two contests must share for the contests to be compared."""
        return self.delta, self.adjacency


@dataclass(frozen=True)
class Candidate:
    """The group of runs that represents a method, and how it was chosen.

    alike: all groups with the same setting, whose budgets may differ slightly. fair: whether the
    others were not chosen by a stricter rule.
    """

    method: str
    choice: Choice
    alike: tuple[Group, ...]
    fair: bool

    @property
    def group(self) -> Group:
        return self.choice.group

    @property
    def is_ranked(self) -> bool:
        """Whether the method can be ranked: it has an epsilon, and was chosen like the others."""
        return self.fair and not isinstance(self.group.epsilon, str)

    def by_seed(self, metric: str) -> dict[str, float]:
        """A metric by seed; none if a run diverged."""
        return {} if self.group.diverged else self.group.by_seed(metric)


@dataclass(frozen=True)
class Contest:
    """The candidates on one data set and model, at one budget or without any epsilon.

    task: the data set and the model. kind: of the data. metric: the one that ranks.
    """

    facet: str
    task: tuple[str, str]
    kind: str
    budget: Budget | None
    candidates: tuple[Candidate, ...]
    metric: str | None

    @cached_property
    def metrics(self) -> list[str]:
        """The metrics to compare by: the one that ranks, then those that two have measured."""
        counts = Counter(name for c in self.candidates for name in offered() if c.by_seed(name))
        others = [name for name in offered() if counts[name] > 1 and name != self.metric]
        return [*([self.metric] if self.metric else []), *others]

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
        mean = estimate([*candidate.by_seed(self.metric).values()]) if self.metric else None
        value = -sign_of(str(self.metric)) * mean.mean if mean else 0.0
        return not candidate.is_ranked, mean is None, value, candidate.method

    @cached_property
    def comparable(self) -> dict[str, Mapping[str, float]]:
        """The metric by seed of each method with a rank that has a mean, the best first."""
        values = {c.method: c.by_seed(self.metric or "") for c in self.ranked if c.is_ranked}
        return {
            method: by_seed for method, by_seed in values.items() if estimate([*by_seed.values()])
        }


def contests(runs: Iterable[ReportedRun]) -> list[Contest]:
    """The contests by data set and model, then by budget."""
    by_facet = grouped((run.row["facet"], run) for run in runs if run.row["dataset"] is not None)
    return [
        _contest(by_facet[facet], budget, tuple(candidates))
        for facet in sorted(by_facet)
        for budget, candidates in _budgets(by_facet[facet])
    ]


def _contest(
    runs: list[ReportedRun], budget: Budget | None, candidates: tuple[Candidate, ...]
) -> Contest:
    row, metric = runs[0].row, ranked_by([candidate.group for candidate in candidates])
    task, kind = (row["dataset"], row["model"]), data_kind(row["dataset"])
    return Contest(row["facet"], task, kind, budget, candidates, metric)


def _budgets(runs: list[ReportedRun]) -> Iterator[tuple[Budget | None, list[Candidate]]]:
    """The budget of each contest, and its candidates."""
    tested = groups_of(run for run in runs if not run.validated)
    validated = groups_of(run for run in runs if run.validated)
    private = sorted(
        (float(group.epsilon), place)
        for place, group in enumerate(tested)
        if not isinstance(group.epsilon, str)
    )
    others = [group for group in tested if isinstance(group.epsilon, str)]
    if not private and others:
        yield None, _candidates(others, validated)
    for budget, groups in sorted(_clusters(private, tested), key=lambda pair: pair[0]):
        budgets = {group.first.budget for group in groups}
        protocols = {group.first.row["protocol"] for group in groups}
        beside = [
            other
            for other in others
            if other.first.budget in budgets
            or (other.epsilon == NOT_PRIVATE and other.first.row["protocol"] in protocols)
        ]
        yield budget, _candidates([*groups, *beside], validated)


def _clusters(
    private: list[tuple[float, int]], groups: Sequence[Group]
) -> Iterator[tuple[Budget, list[Group]]]:
    """Groups of one delta and about the same epsilon. private: epsilon and place of each."""
    by_delta = grouped((groups[place].first.delta, (epsilon, place)) for epsilon, place in private)
    for delta, pairs in by_delta.items():
        while pairs:
            most = pairs[0][0] * SAME_BUDGET
            inside = [pair for pair in pairs if pair[0] <= most]
            pairs = pairs[len(inside) :]
            found = [groups[place] for _, place in inside]
            yield Budget(inside[0][0], inside[-1][0], delta, found[0].first.adjacency), found


def _candidates(groups: Iterable[Group], validated: Iterable[Group]) -> list[Candidate]:
    """One candidate per method. What was chosen on the test set is compared only with its like."""
    tested, tried = _by_method(groups), defaultdict(list, _by_method(validated))
    tables = ({group.table for group in same if group.table} for same in tested.values())
    shared = Counter(name for names in tables for name in names)
    choices = {method: choose(tested[method], tried[method], shared) for method in sorted(tested)}
    strict = not all(choice.on_test for choice in choices.values())
    return [
        Candidate(
            method,
            choice,
            alike=tuple(g for g in tested[method] if g.first.setting == choice.group.first.setting),
            fair=not (strict and choice.on_test),
        )
        for method, choice in choices.items()
    ]


def _by_method(groups: Iterable[Group]) -> dict[str, list[Group]]:
    return grouped((group.first.row["method"], group) for group in groups)
