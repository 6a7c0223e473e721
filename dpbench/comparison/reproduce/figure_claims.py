"""Judges a paper's claims about the curves of a figure, by diagnostics and metrics of our runs."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.claims.claim import Claim
from dpbench.comparison.tables.claims.comparisons import JudgedClaim, evidence
from dpbench.comparison.tables.claims.grids import (
    chance_line,
    claims_grid,
    comparisons_grid,
    power_line,
    rules_of,
)
from dpbench.comparison.tables.claims.quantities import MINUS, Quantity
from dpbench.comparison.tables.columns import Column
from dpbench.comparison.tables.page import Block
from dpbench.comparison.tables.runs import FlatRun, Row
from dpbench.comparison.tables.summary import claims_line
from dpbench.learning.metrics.metric import Margin
from dpbench.learning.metrics.registry import parse_name
from dpbench.privacy.guarantee import CORRECTED
from dpbench.runs.records.divergence import DIVERGED
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError
from dpbench.system.grouping import grouped

STATISTICS: dict[str, Callable[[np.ndarray], float]] = {
    "mean": np.mean,
    "min": np.min,
    "max": np.max,
    "first": lambda points: points[0],
    "last": lambda points: points[-1],
    "change": lambda points: points[-1] - points[0],
}

SERIES_RULE = (
    "The value of a series is its mean along a run, or, where the claim is about every point, its "
    "largest or smallest value. The margin is the metric's own; that of other series is 5% of the "
    "larger value."
)

RULES_OVER = {
    "first": "First of a series: its first value; of a histogram, the share of the lowest cell.",
    "last": "Last of a series: its last value; of a histogram, the share of the highest cell.",
    "change": "Change of a series: its last value minus its first.",
}


def judge_figure(
    target: Target, runs: Iterable[FlatRun], records: Sequence[Record]
) -> list[JudgedClaim]:
    """The claims of a figure, in their order.

    runs: one for each record, with its condition and method. A quantity is a series of the
    records' diagnostics, a metric, a mean by bin of the reliability diagram (`bins/confidence`,
    `bins/accuracy`) or the shares of a histogram (`histogram/true_class`); or the difference of
    two, point by point; within bars, its absolute value. `<k>` in it stands for each of the
    figure's groups in turn. Raises UserError for a series that a record does not have.
    """
    claims = target.claims
    names = dict.fromkeys(c.metric for claim in claims for c in _columns(target, claim))
    of_rows = grouped(
        ((run["condition"], run["method"]), {**run, **{n: _value(record, n) for n in names}})
        for run, record in zip(runs, records, strict=True)
    )
    rows = [Row(*cell, CORRECTED, part) for cell, part in of_rows.items()]
    judge = evidence(target.labels, rows, {}).judge
    return [
        judge(claim, [Quantity(c.name, (c,)) for c in _columns(target, claim)]) for claim in claims
    ]


def claims_blocks(judged: Sequence[JudgedClaim]) -> tuple[list[Block], list[Block]]:
    """The blocks on claims at the beginning and at the end of a figure's page."""
    if not judged:
        return [], []
    over = {item.claim.over for item in judged}
    by_size = rules_of(item.claim for item in judged)
    rules = [*by_size, SERIES_RULE, *(rule for name, rule in RULES_OVER.items() if name in over)]
    lines = [claims_line(judged), chance_line(judged), power_line(judged)]
    return [[*filter(None, lines)], claims_grid(judged)], [comparisons_grid(judged), *rules]


def _columns(target: Target, claim: Claim) -> list[Column]:
    """The quantities of a claim as columns, whose metrics are expressions for `_value`."""
    groups = target.table.numbers_of_groups
    series = [
        (text.replace("<k>", group), text.replace("<k>", str(number)))
        for text in claim.quantities
        for group, number in (groups.items() if "<k>" in text else [("", "")])
    ]
    prefix = "" if claim.over == "mean" else f"{claim.over} of "
    return [
        Column(
            f"{prefix}{label}", f"{claim.over} of {name}", 1, None, "higher", label, _margin(name)
        )
        for label, name in series
    ]


def _margin(series: str) -> Margin:
    """The margin of a metric, in the unit of the records, or of another series."""
    name = parse_name(series)
    return name.margin.in_records(name.metric.factor)


def _value(record: Record, name: str) -> float:
    """`max of |step/a - step/b|`: over the points of a run that are not NaN, if there are any."""
    if record.status == DIVERGED:
        return math.nan
    over, _, series = name.partition(" of ")
    first, *rest = (_points(record, part) for part in series.strip("|").split(MINUS))
    points = np.abs(first - sum(rest)) if series.startswith("|") else first - sum(rest)
    points = points[~np.isnan(points)]
    return float(STATISTICS[over](points)) if len(points) else math.nan


def _points(record: Record, series: str) -> np.ndarray:
    for values in (record.diagnostics, record.metrics, _calibration(record)):
        if series in values:
            return np.atleast_1d(np.array(values[series], dtype=float))
    method = record.config["choices"]["method"]
    raise UserError(f"a claim is about {series}, which the run of {method} lacks.")


def _calibration(record: Record) -> dict[str, list[float]]:
    """The means by bin of the reliability diagram, and the shares by cell of the histograms."""
    bins, counts = (record.calibration.get(name, {}) for name in ("bins", "histogram"))
    return {
        **{f"bins/{name}": bins[name] for name in bins if name != "count"},
        **{f"histogram/{name}": [n / sum(cells) for n in cells] for name, cells in counts.items()},
    }
