"""The first view of the page: for a data set and a budget, one ranked row per method."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpbench.dashboard.answer import verdicts
from dpbench.dashboard.choice import Group, choose, groups_of, ranked_by, sign_of
from dpbench.dashboard.metrics import metric_entry
from dpbench.dashboard.run_row import ReportedRun, seven_digits
from dpbench.metrics.students_t import Estimate, estimate, paired
from dpbench.metrics.worst_group import WORST_GROUP, value_of

SAME_BUDGET = 1.15
"""Epsilons on one board differ by at most this factor: with equal noise multipliers, methods with
noisy counts have slightly larger ones."""

BASELINES = ("dpsgd", "sgd")
"""Methods to compare the others with: the first of these on the board."""

ECE = "test/ece"
WORST = "worst group"
ACCURACY = "test/accuracy"

NOT_PRIVATE = "not private"


class Budget(NamedTuple):
    """The lowest and the highest epsilon on a board, and the delta of all."""

    low: float
    high: float
    delta: float | None


@dataclass(frozen=True)
class Candidate:
    """The group of runs that represents a method, and how it was chosen.

    alike: all groups with the same setting, whose budgets may differ slightly.
    """

    method: str
    group: Group
    chosen: str
    alike: tuple[Group, ...]

    @cached_property
    def values(self) -> dict[str, dict[str, float]]:
        """The metrics of the board by seed; none if a run diverged."""
        if self.group.diverged:
            return {}
        metric = ranked_by([self.group])
        names = [name for name in (metric, ECE) if name is not None]
        worst = {r.row["seed"]: value_of(r.metrics, WORST_GROUP) for r in self.group.runs}
        return {name: self.group.by_seed(name) for name in names} | {
            WORST: {seed: value for seed, value in worst.items() if not math.isnan(value)}
        }


def boards(runs: Sequence[ReportedRun]) -> tuple[list[dict], set[str]]:
    """The boards as the page's JSON, and the names of all groups with a candidate's setting."""
    by_facet: dict[str, list[ReportedRun]] = defaultdict(list)
    for run in runs:
        if run.row["dataset"] is not None:
            by_facet[run.row["facet"]].append(run)
    found, best = [], set()
    for facet in sorted(by_facet):
        for budget, candidates in _budgets(by_facet[facet]):
            found.append(_board(facet, budget, candidates))
            best |= {group.name for candidate in candidates for group in candidate.alike}
    return found, best


def _budgets(runs: list[ReportedRun]) -> Iterator[tuple[Budget | None, list[Candidate]]]:
    """The budget of each board, and the candidates on it."""
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
    by_delta: dict[float | None, list[tuple[float, int]]] = defaultdict(list)
    for epsilon, place in private:
        by_delta[groups[place].first.delta].append((epsilon, place))
    for delta, pairs in by_delta.items():
        while pairs:
            most = pairs[0][0] * SAME_BUDGET
            inside = [pair for pair in pairs if pair[0] <= most]
            pairs = pairs[len(inside) :]
            yield Budget(inside[0][0], inside[-1][0], delta), [groups[place] for _, place in inside]


def _candidates(groups: Iterable[Group], validated: Iterable[Group]) -> list[Candidate]:
    """One candidate per method."""
    tested, tried = _by_method(groups), _by_method(validated)
    return [_candidate(method, tested[method], tried[method]) for method in sorted(tested)]


def _candidate(method: str, tested: list[Group], tried: list[Group]) -> Candidate:
    group, chosen = choose(tested, tried)
    alike = tuple(other for other in tested if other.first.setting == group.first.setting)
    return Candidate(method, group, chosen, alike)


def _by_method(groups: Iterable[Group]) -> defaultdict[str, list[Group]]:
    by_method = defaultdict(list)
    for group in groups:
        by_method[group.first.row["method"]].append(group)
    return by_method


def _board(facet: str, budget: Budget | None, candidates: list[Candidate]) -> dict:
    metric = ranked_by([candidate.group for candidate in candidates])
    ranked = sorted(candidates, key=lambda c: _place(c, metric))
    baseline = _baseline(candidates)
    columns = [metric] if metric else []
    columns += [name for name in (WORST, ECE) if _measured(name, candidates)]
    rows = [_row(c, columns, baseline, ranked[0]) for c in ranked]
    if baseline is not None and columns:
        _judge(rows, ranked, columns[0], baseline)
    rank = 0
    for row in rows:
        rank += row["ranked"]
        row["rank"] = rank if row.pop("ranked") else None
    return {
        "facet": facet,
        "low": budget and seven_digits(budget.low),
        "high": budget and seven_digits(budget.high),
        "delta": budget and budget.delta,
        "columns": [_column(name) for name in columns],
        "baseline": baseline and baseline.method,
        "span": _span([row["forest"] for row in rows if row["forest"]]),
        "rows": rows,
    }


def _measured(name: str, candidates: Iterable[Candidate]) -> bool:
    return any(candidate.values.get(name) for candidate in candidates)


def _column(name: str) -> dict:
    entry = metric_entry(ACCURACY if name == WORST else name)
    return entry | {"name": name} | ({"label": WORST} if name == WORST else {})


def _baseline(candidates: Sequence[Candidate]) -> Candidate | None:
    by_method = {candidate.method: candidate for candidate in candidates}
    return next((by_method[name] for name in BASELINES if name in by_method), None)


def _is_ranked(candidate: Candidate) -> bool:
    """Whether the method has an epsilon; others are not comparable, and have no rank."""
    return not isinstance(candidate.group.epsilon, str)


def _place(candidate: Candidate, metric: str | None) -> tuple:
    """Methods with an epsilon first, the best mean first, those without a mean last."""
    mean = candidate.group.mean(metric) if metric else None
    value = -sign_of(str(metric)) * mean.mean if mean else 0.0
    return not _is_ranked(candidate), mean is None, value, candidate.method


def _row(
    candidate: Candidate, columns: list[str], baseline: Candidate | None, best: Candidate
) -> dict:
    row, group = candidate.group.first.row, candidate.group
    means = {name: estimate([*candidate.values.get(name, {}).values()]) for name in columns}
    cells = [_cell(candidate, name, means[name], baseline) for name in columns]
    return {
        "method": candidate.method,
        "id": row["id"],
        "series": row["series"],
        "chosen": candidate.chosen,
        "seeds": len(group.runs),
        "diverged": group.diverged,
        "epsilon": group.epsilon,
        "guarantee": row["guarantee"],
        "cells": cells,
        "forest": _forest(cells[0], candidate, baseline) if cells and cells[0] else None,
        "verdict": None,
        "standing": _standing(candidate, columns[0], best) if columns else "unranked",
        "ranked": bool(columns) and _is_ranked(candidate) and means[columns[0]] is not None,
        "ms": _milliseconds(group),
        "machine": row["machine"],
        "audit": _audit(group),
    }


def _cell(
    candidate: Candidate, name: str, mean: Estimate | None, baseline: Candidate | None
) -> dict | None:
    """A mean with its interval, and its difference to the baseline, paired by seed."""
    if mean is None:
        return None
    gap = None
    if baseline is not None and baseline is not candidate:
        gap = paired(candidate.values[name], baseline.values.get(name, {}))
    return {
        "mean": seven_digits(mean.mean),
        "n": mean.n,
        **_interval(candidate, name, mean),
        "gap": _rounded(gap),
    }


def _forest(cell: dict, candidate: Candidate, baseline: Candidate | None) -> dict | None:
    """The difference to the baseline with the ends of its interval, for a forest plot; the mean and
    its interval on a board without one."""
    if baseline is None:
        return {key: cell[key] for key in ("mean", "low", "high")}
    if candidate is baseline:
        return {"mean": 0.0, "low": None, "high": None}
    if cell["gap"] is None:
        return None
    mean, half, _ = cell["gap"]
    ends = (None, None) if half is None else (mean - half, mean + half)
    return {"mean": mean, **dict(zip(("low", "high"), ends, strict=True))}


def _judge(
    rows: Sequence[dict], ranked: Sequence[Candidate], metric: str, baseline: Candidate
) -> None:
    """Put the verdicts on the methods with an epsilon against a baseline with one into the rows."""
    if not _is_ranked(baseline):
        return
    places = [i for i, c in enumerate(ranked) if _is_ranked(c) and c is not baseline]
    values = [ranked[i].values.get(metric, {}) for i in places]
    judged = verdicts(metric, baseline.values.get(metric, {}), values)
    for place, verdict in zip(places, judged, strict=True):
        rows[place]["verdict"] = verdict


def _interval(candidate: Candidate, name: str, mean: Estimate) -> dict:
    """The ends of the interval, and whether it is over seeds or the test examples of one run."""
    if mean.half is not None:
        low, high, over = mean.mean - mean.half, mean.mean + mean.half, "seeds"
    else:
        ends = candidate.group.first.intervals.get(name.partition("/")[2])
        if not isinstance(ends, list | tuple):
            return {"low": None, "high": None, "over": None}
        low, high, over = *ends, "test examples"
    if _column(name)["percent"]:
        low, high = max(low, 0.0), min(high, 1.0)
    return {"low": seven_digits(low), "high": seven_digits(high), "over": over}


def _rounded(mean: Estimate | None) -> list | None:
    """Mean, half width and number, for the page."""
    if mean is None:
        return None
    half = None if mean.half is None else seven_digits(mean.half)
    return [seven_digits(mean.mean), half, mean.n]


def _standing(candidate: Candidate, metric: str, best: Candidate) -> str:
    """Whether a method is significantly behind the first, by differences paired by seed."""
    if not _is_ranked(candidate) or not candidate.values.get(metric):
        return "unranked"
    if candidate is best:
        return "first"
    gap = paired(candidate.values[metric], best.values[metric])
    if gap is None or gap.half is None:
        return "unknown"
    return "behind" if sign_of(metric) * gap.mean + gap.half < 0 else "tied"


def _milliseconds(group: Group) -> list[float] | None:
    """Milliseconds per step, mean, least and most, over the runs on the machine of the first run.

    An interval of the mean would say little: the times of a few runs are not near a normal law.
    """
    machine = group.first.row["machine"]
    times = [r.row["ms"] for r in group.runs if r.row["ms"] and r.row["machine"] == machine]
    numbers = [math.fsum(times) / len(times), min(times), max(times)] if times else []
    return [seven_digits(time) for time in numbers] or None


FENCE = 5.0
"""Means that are further from their median than this many times the usual distance, or the usual
interval, do not set the scale."""


def _span(cells: Sequence[dict]) -> list[float]:
    """The ends of the axis for means and intervals, which a few outliers do not stretch."""
    if not cells:
        return [0.0, 0.0]
    means = np.array([cell["mean"] for cell in cells])
    widths = [cell["high"] - cell["low"] for cell in cells if cell["low"] is not None]
    middle = np.median(means)
    usual = max(np.median(np.abs(means - middle)), np.median(widths) if widths else 0.0)
    low, high = middle - FENCE * usual, middle + FENCE * usual
    inside = [cell for cell in cells if low <= cell["mean"] <= high]
    parts = ("mean", "low", "high")
    ends = [cell[part] for cell in inside for part in parts if cell[part] is not None]
    clipped = np.clip(ends, low, high)
    return [seven_digits(clipped.min()), seven_digits(clipped.max())]


def _audit(group: Group) -> dict | None:
    """The largest lower bound of epsilon that audits of the runs have found."""
    audits = [run.row["audit"] for run in group.runs if run.row["audit"]]
    return max(audits, key=lambda audit: audit["epsilon"], default=None)
