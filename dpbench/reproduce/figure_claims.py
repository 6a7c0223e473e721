"""What a paper claims of a figure's curves, held against what runs measured as they went on."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from dpbench.errors import UserError
from dpbench.records.divergence import DIVERGED
from dpbench.records.record import Record
from dpbench.reproduce.target import Target
from dpbench.tables import CORRECTED, PAPER_SCALE, Row, grid_lines
from dpbench.tables.claim_grids import claims_grid, comparisons_grid
from dpbench.tables.claims import Claim, claims_of
from dpbench.tables.comparisons import JudgedClaim, evidence
from dpbench.tables.quantities import MINUS, Quantity
from dpbench.tables.spec import Column
from dpbench.tables.summary import claims_line

STATISTICS: dict[str, Callable[[np.ndarray], float]] = {
    "mean": np.nanmean,
    "min": np.nanmin,
    "max": np.nanmax,
}

RULE = (
    "Claims: a gap is what a row has less what the other has (or less a number), paired by seed, "
    "with its 95% interval by Student's t; of a series along a run its mean counts, or, where the "
    "claim is about every point, its largest or smallest value. A comparison holds where the "
    "interval lies on the claimed side of 0, does not hold where it lies on the other, and is "
    "undecided between. A claim holds if all of its comparisons do, and does not if one does not. "
    "p is that of the one-sided Wilcoxon signed-rank test: 2^-n at least with n seeds."
)


def judged_figure(
    wanted: Target, runs: pd.DataFrame, records: Sequence[Record]
) -> list[JudgedClaim]:
    """Every claim of a figure, in its order.

    runs: a row for each record, with its condition and method. A quantity is a series of the
    records' diagnostics or a metric, or the difference of two, point by point; in bars, the size of
    it. `<k>` in it stands for each of the figure's groups in turn. Raises UserError for one that a
    record does not have.
    """
    claims = claims_of(wanted.claims)
    about = {column.metric: column for claim in claims for column in _columns(wanted, claim)}
    measured = [{name: _value(record, name) for name in about} for record in records]
    whole = pd.concat([runs.reset_index(drop=True), pd.DataFrame(measured)], axis=1)
    rows = [
        Row(label, method, CORRECTED, part)
        for (label, method), part in whole.groupby(["condition", "method"], sort=False)
    ]
    conditions = [condition.label for condition in wanted.conditions]
    known = evidence(conditions, wanted.scale_label == PAPER_SCALE, rows, {})
    return [
        known.judge(claim, [Quantity(c.name, (c,)) for c in _columns(wanted, claim)])
        for claim in claims
    ]


def claims_blocks(judged: Sequence[JudgedClaim]) -> tuple[list[str], list[str]]:
    """What a figure's page begins with, and what it ends with; nothing without a claim."""
    if not judged:
        return [], []
    every = comparisons_grid(judged)
    before = [f"- {claims_line(judged)}", f"## Claims\n\n{grid_lines(claims_grid(judged))}"]
    return before, [f"## {every.heading}\n\n{grid_lines(every)}", RULE]


def _columns(wanted: Target, claim: Claim) -> list[Column]:
    """What a claim compares, as columns whose metric says how it is read from a record."""
    groups = dict(zip(wanted.table["groups"], wanted.table["group_numbers"], strict=True))
    series = [
        (text.replace("<k>", str(group)), text.replace("<k>", str(number)))
        for text in claim.quantities
        for group, number in (groups.items() if "<k>" in text else [("", "")])
    ]
    what = "" if claim.over == "mean" else f"{claim.over} of "
    return [
        Column(f"{what}{label}", f"{claim.over} of {one}", 1, None, "higher", label)
        for label, one in series
    ]


def _value(record: Record, name: str) -> float:
    """`max of |step/a - step/b|`: of the points of a run that are numbers; NaN where none is."""
    over, _, series = name.partition(" of ")
    first, *rest = (_points(record, part) for part in series.strip("|").split(MINUS))
    points = np.abs(first - sum(rest)) if series.startswith("|") else first - sum(rest)
    if record.status == DIVERGED or np.isnan(points).all():
        return math.nan
    return float(STATISTICS[over](points))


def _points(record: Record, series: str) -> np.ndarray:
    for measured in (record.diagnostics, record.metrics):
        if series in measured:
            return np.atleast_1d(np.array(measured[series], dtype=float))
    method = record.config["choices"]["method"]
    raise UserError(f"a claim is about {series}, which the run of {method} lacks.")
