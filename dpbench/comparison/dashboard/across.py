"""The first view: methods over several tasks at one budget, by paired differences and ranks.

A task is a data set with a model.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpbench.comparison.compare.pairs import against, ranks
from dpbench.comparison.compare.side import BySeed, Side, Tuning
from dpbench.comparison.compare.verdict import Judged
from dpbench.comparison.dashboard.boards import column_of, gap_forest, rounded, span
from dpbench.comparison.dashboard.contests import SAME_BUDGET, Contest
from dpbench.learning.metrics.paired_t import LEVEL
from dpbench.learning.metrics.registry import metric_of
from dpbench.learning.metrics.students_t import estimate, paired

FEWEST_METHODS = 3

ALL = "all kinds of data"


@dataclass(frozen=True)
class Study:
    """Contests at about one epsilon and one delta, by one metric, with the same baseline.

    data: the kind of their data, or ALL.
    """

    data: str
    contests: tuple[Contest, ...]

    @cached_property
    def methods(self) -> list[str]:
        """The methods of every contest that have a seed in common in all, the best first."""
        common = set.intersection(*(set(one.comparable) for one in self.contests))
        means = {m: estimate([*self.by_seed(m).values()]) for m in sorted(common)}
        found = {method: mean.mean for method, mean in means.items() if mean}
        return sorted(found, key=lambda method: -self.sign * found[method])

    @property
    def metric(self) -> str:
        return str(self.contests[0].metric)

    @property
    def metrics(self) -> list[str]:
        """The metrics that all contests may be compared by, the one that ranks first."""
        first, *others = (one.metrics for one in self.contests)
        return [name for name in first if all(name in names for names in others)]

    def by(self, metric: str) -> "Study":
        """The same contests by another metric."""
        return Study(self.data, tuple(one.by(metric) for one in self.contests))

    @property
    def can_compare(self) -> bool:
        """Whether there are two tasks, and three methods with a seed in common in all."""
        compared = len(self.methods) >= FEWEST_METHODS and self.baseline in self.methods
        return len(self.contests) > 1 and compared

    @property
    def sign(self) -> int:
        return metric_of(self.metric).sign

    @property
    def baseline(self) -> str:
        return str(_baseline(self.contests[0]))

    def by_seed(self, method: str) -> dict[str, float]:
        """The mean over the tasks for each seed that all of them have."""
        return _means([one.comparable[method] for one in self.contests])

    def side(self, method: str) -> Side:
        """A method as a side of comparisons by the means over the tasks."""
        sides = [one.sides[method] for one in self.contests]
        tunings = [side.tuning for side in sides]
        known = [t.trials for t in tunings if t.trials is not None]
        return Side(
            method,
            _means([side.values for side in sides]),
            tuple(side.budgets[0] for side in sides),
            {f"{k} ({i})": v for i, side in enumerate(sides) for k, v in side.settings.items()},
            Tuning(min(known, default=None), next((t.flaw for t in tunings if t.flaw), "")),
            "; ".join(side.design for side in sides) if all(s.design for s in sides) else "",
        )

    @property
    def no_headroom(self) -> str:
        """Why no task has headroom; "" if one has."""
        reasons = [one.no_headroom for one in self.contests]
        return reasons[0] if all(reasons) else ""

    def mean_rank(self, method: str) -> float:
        """The mean over the tasks of the rank among these methods, ties halved."""
        return math.fsum(self._rank(method, one) for one in self.contests) / len(self.contests)

    def _rank(self, method: str, contest: Contest) -> float:
        means = {m: sum(v.values()) / len(v) for m, v in contest.comparable.items()}
        gaps = [round(self.sign * (means[other] - means[method]), 12) for other in self.methods]
        return 0.5 + sum(gap > 0 for gap in gaps) + 0.5 * sum(gap == 0 for gap in gaps)


def _means(values: Sequence[BySeed]) -> dict[str, float]:
    seeds = [seed for seed in values[0] if all(seed in others for others in values)]
    return {seed: math.fsum(one[seed] for one in values) / len(values) for seed in seeds}


def studies(contests: Sequence[Contest]) -> Iterator[Study]:
    """The studies by each metric: those of each kind of data, then those of several kinds."""
    private = [c for c in contests if c.budget and _baseline(c) in c.comparable]
    for kind in sorted({contest.kind for contest in private}):
        yield from _compared(kind, [one for one in private if one.kind == kind])
    yield from _compared(ALL, private)


def _compared(data: str, contests: Sequence[Contest]) -> Iterator[Study]:
    """The studies among contests: the one with the most methods is joined by those that share at
    least half of them.

    Of one task that was changed, such as by another test split, a study has one version: the one
    with the most methods, then that with the shortest name, which has the fewest changes.
    """
    rest = sorted(contests, key=lambda one: (-len(one.comparable), len(one.facet)))
    while rest:
        first = rest[0]
        alike = {c.task: c for c in reversed(rest) if _is_alike(c, first)}
        study = Study(data, tuple(c for c in rest if c is alike.get(c.task)))
        rest = [c for c in rest if not _is_alike(c, first)]
        if data != ALL or len({one.kind for one in study.contests}) > 1:
            yield from (one for one in map(study.by, study.metrics) if one.can_compare)


def _baseline(contest: Contest) -> str | None:
    return contest.baseline.method if contest.baseline else None


def _is_alike(contest: Contest, first: Contest) -> bool:
    ours, theirs = contest.budget, first.budget
    if not ours or not theirs:
        return False
    near = max(ours.high, theirs.high) <= SAME_BUDGET * min(ours.low, theirs.low)
    terms = [(c.metric, _baseline(c)) for c in (contest, first)]
    shared = len(contest.comparable.keys() & first.comparable.keys())
    same = ours.terms == theirs.terms and terms[0] == terms[1]
    return near and same and 2 * shared >= len(first.comparable)


def across(study: Study) -> dict:
    """A study as plain data, as of a board: its rows are means over the tasks."""
    sides = {method: study.side(method) for method in study.methods}
    judged, by_rank = against(sides, study.baseline, study.metric), ranks(sides, study.metric)
    rows = [_row(study, m, judged.get(m), by_rank[m]) for m in study.methods]
    budgets = [one.budget for one in study.contests if one.budget]
    return {
        "facet": study.data,
        "where": f"{study.data} ({len(study.contests)} tasks)",
        "facets": [one.facet for one in study.contests],
        "low": min(budget.low for budget in budgets),
        "high": max(budget.high for budget in budgets),
        "delta": budgets[0].delta,
        "columns": [column_of(study.metric)],
        "baseline": study.baseline,
        "no_headroom": study.no_headroom,
        "critical_difference": critical_difference(len(rows), len(study.contests)),
        "span": span([row["forest"] for row in rows if row["forest"]]),
        "rows": rows,
    }


def _row(study: Study, method: str, judged: Judged | None, places: tuple[int, int]) -> dict:
    by_seed, base = study.by_seed(method), study.baseline
    gap = rounded(paired(by_seed, study.by_seed(base)))
    return {
        "method": method,
        "id": next(
            c.group.first.row["id"] for c in study.contests[0].candidates if c.method == method
        ),
        "seeds": len(by_seed),
        "mean": estimate([*by_seed.values()]),
        "gap": gap,
        "forest": gap_forest((0.0, None, 0) if method == base else gap),
        "gaps": [
            None
            if method == base
            else rounded(paired(one.comparable[method], one.comparable[base]))
            for one in study.contests
        ],
        "verdict": judged and judged.verdict,
        "reason": judged.reason if judged else "",
        "ranks": places,
        "standing": "tied" if places[0] == 1 else "",
        "mean_rank": study.mean_rank(method),
    }


@functools.cache
def critical_difference(methods: int, tasks: int) -> float:
    """The least difference of two mean ranks that shows one method to be better on other tasks of
    their kind: Nemenyi's test after Demšar 2006, "Statistical Comparisons of Classifiers over
    Multiple Data Sets", section 3.2.2."""
    from scipy.stats import studentized_range

    quantile = studentized_range.ppf(1 - LEVEL, methods, math.inf) / math.sqrt(2)
    return float(quantile) * math.sqrt(methods * (methods + 1) / (6 * tasks))
