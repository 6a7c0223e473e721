"""A contest as a board: one ranked row per method, with intervals, standings and verdicts."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dpbench.comparison.compare.pairs import difference, ranks
from dpbench.comparison.compare.side import Side
from dpbench.comparison.dashboard.contests import Contest
from dpbench.comparison.dashboard.representative import Candidate, Group
from dpbench.comparison.dashboard.run_row import seven_digits
from dpbench.comparison.dashboard.values import metric_entry
from dpbench.learning.metrics.derived import WORST_GROUP
from dpbench.learning.metrics.students_t import Estimate, paired

ECE = "test/ece"


def board(contest: Contest) -> dict:
    """The rows of a contest as plain data, best first."""
    ranked, baseline, budget = contest.ranked, contest.baseline, contest.budget
    measured = [name for name in (WORST_GROUP, ECE) if any(c.group.by_seed(name) for c in ranked)]
    columns = [*dict.fromkeys(filter(None, (contest.metric, *measured)))]
    verdicts = _verdicts(contest)
    rows = [_row(c, columns, baseline) | verdicts.get(c.method, UNRANKED) for c in ranked]
    return {
        "facet": contest.facet,
        "low": budget and budget.low,
        "high": budget and budget.high,
        "delta": budget and budget.delta,
        "columns": [column_of(name) for name in columns],
        "baseline": baseline and baseline.method,
        "no_headroom": contest.no_headroom,
        "span": span([row["forest"] for row in rows if row["forest"]]),
        "rows": rows,
    }


def column_of(name: str) -> dict:
    return metric_entry(name) | ({"label": "worst group"} if name == WORST_GROUP else {})


def _row(candidate: Candidate, columns: list[str], baseline: Candidate | None) -> dict:
    row, group = candidate.group.first.row, candidate.group
    cells = [_cell(candidate, name, baseline) for name in columns]
    first = cells[0] if cells else None
    audits = (audit for run in group.runs if (audit := run.row["audit"]))
    return {
        "method": candidate.method,
        "id": row["id"],
        "chosen": candidate.how,
        "on_test": candidate.on_test,
        "seeds": len(group.runs),
        "diverged": group.diverged,
        "epsilon": group.epsilon,
        "guarantee": row["guarantee"],
        "cells": cells,
        "forest": first and _forest(first, candidate, baseline),
        "gap": first and first["gap"],
        "ms": _milliseconds(group),
        "machine": row["machine"],
        "audit": max(audits, key=lambda audit: audit["epsilon"], default=None),
    }


def _cell(candidate: Candidate, name: str, baseline: Candidate | None) -> dict | None:
    """A mean, and the difference to the baseline as mean, half its interval, and number."""
    if (mean := candidate.group.mean(name)) is None:
        return None
    others = baseline.group.by_seed(name) if baseline and baseline is not candidate else {}
    gap = paired(candidate.group.by_seed(name), others)
    return {
        "mean": seven_digits(mean.mean),
        **_interval(candidate, name, mean),
        "gap": gap and [seven_digits(gap.mean), gap.half and seven_digits(gap.half), gap.n],
    }


def _forest(cell: dict, candidate: Candidate, baseline: Candidate | None) -> dict | None:
    """The difference to the baseline with the ends of its interval, for a forest plot; the mean and
    its interval on a board without one."""
    if baseline is None:
        return {key: cell[key] for key in ("mean", "low", "high")}
    if (gap := (0.0, None, 0) if candidate is baseline else cell["gap"]) is None:
        return None
    mean, half, _ = gap
    low, high = (None, None) if half is None else (mean - half, mean + half)
    return {"mean": mean, "low": low, "high": high}


UNRANKED = {"ranks": None, "verdict": None, "reason": "", "standing": "unranked"}


def _verdicts(contest: Contest) -> dict[str, dict]:
    sides, metric, judged = contest.sides, contest.metric, contest.judged
    return {
        method: {
            "ranks": places,
            "verdict": judged[method].verdict if method in judged else None,
            "reason": ", ".join(filter(None, judged[method][2:])) if method in judged else "",
            "standing": _standing(sides, method, places, metric),
        }
        for method, places in ranks(sides, metric).items()
    }


def _standing(sides: Mapping[str, Side], method: str, places: tuple[int, int], metric: str) -> str:
    """Whether a method with ranks is the first, or may be, or is shown to be behind another."""
    if method == (best := next(iter(sides))):
        return "first"
    if places[0] > 1:
        return "behind"
    test = difference(sides[method], sides[best], metric)
    return "tied" if test and test.is_possible else "unknown"


def _interval(candidate: Candidate, name: str, mean: Estimate) -> dict:
    """The ends of the interval, and whether it is over seeds or the test examples of one run."""
    if mean.half is not None:
        low, high, over = mean.mean - mean.half, mean.mean + mean.half, "seeds"
    else:
        ends = candidate.group.first.intervals.get(name.partition("/")[2])
        if not isinstance(ends, list | tuple):
            return {"low": None, "high": None, "over": None}
        low, high, over = *ends, "test examples"
    if column_of(name)["percent"]:
        low, high = max(low, 0.0), min(high, 1.0)
    return {"low": seven_digits(low), "high": seven_digits(high), "over": over}


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


def span(cells: Sequence[dict]) -> list[float]:
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
