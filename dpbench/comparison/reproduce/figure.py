"""The figure of a target by its kind, the numbers in it, and the claims about its curves."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.claims.comparisons import ClaimEvidence, JudgedClaim
from dpbench.comparison.tables.claims.grids import (
    chance_line,
    claims_grid,
    comparisons_grid,
    power_line,
    rules_of,
)
from dpbench.comparison.tables.claims.quantities import MINUS, Quantity
from dpbench.comparison.tables.edition import PAPER_SCALE, RowClaim, TableColumn
from dpbench.comparison.tables.figures.heat import draw_heat, heat_grids, heat_points
from dpbench.comparison.tables.figures.lines import band_grid, bands, draw_lines, line_points
from dpbench.comparison.tables.figures.panels import F, FigureSpec
from dpbench.comparison.tables.figures.scatter import draw_scatter, scatter_grid, scatter_points
from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import PageBlock
from dpbench.comparison.tables.runs import FlatRun, Row
from dpbench.comparison.tables.summary import claims_line
from dpbench.learning.metrics.metric import Margin
from dpbench.learning.metrics.registry import metric_of, parse_name
from dpbench.privacy.guarantee import CORRECTED
from dpbench.runs.config.buildable import TARGET, check
from dpbench.runs.config.search_path import method_name
from dpbench.runs.config.table_file import Drawing, Heat, Histogram, Lines, Scatter, TableFile
from dpbench.runs.config.table_rules import trials_of
from dpbench.runs.figures.reliability import (
    HISTOGRAMS,
    draw_histograms,
    draw_reliability,
    histogram_points,
    reliability_points,
)
from dpbench.runs.records.divergence import DIVERGED, note
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError
from dpbench.system.grouping import grouped
from dpbench.system.validate import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NOT_PRIVATE = (
    "Drawn from private data without accounting for it; nothing here is released privately."
)
"""On the page of a picture whose numbers no epsilon covers."""


@dataclass(frozen=True)
class Picture:
    """A figure, the data drawn in it, and the grids for its page."""

    figure: "Figure"
    numbers: pd.DataFrame
    grids: tuple[Grid, ...] = ()


def picture(target: Target, records: list[Record]) -> Picture:
    """The figure of a target, of the kind in its file."""
    figure, title = target.table.figure, _title(target)
    match figure:
        case Lines(columns=columns, panels=panels):
            lines = _spec(target, figure, names=not figure.labels)
            # A group has no number at a step whose batch has none of its examples.
            data = bands(line_points(lines, target.placed(records)), skip_nan=columns == "method")
            x = " or ".join(dict.fromkeys(panel.x_label for panel in panels))
            return Picture(draw_lines(lines, data), data, (band_grid(data, x),))
        case Heat():
            data = heat_points(records, figure)
            return Picture(draw_heat(data, title, figure), data, heat_grids(data, figure))
        case Scatter():
            spec = _spec(target, figure, names=True)
            data = scatter_points(spec, target.placed(records), _trials(target, figure))
            return Picture(draw_scatter(spec, data), data, (scatter_grid(spec, data),))
        case Histogram():
            return _histogram(target, figure.variable, records)
    data = reliability_points(_runs(target, records))
    return Picture(draw_reliability(data, title), data)


def check_figure(table: TableFile) -> None:
    """UserError, before any run, for a figure that cannot be drawn."""
    figure = table.figure
    if isinstance(figure, Drawing):
        check("table", {TARGET: figure.target})
    if isinstance(figure, Lines | Heat) and not figure.panels:
        raise UserError("table.figure.panels is empty: there is nothing to draw.")
    if isinstance(figure, Heat):
        varied = {key for block in table.conditions for key in block}
        one_of("table.figure.x", figure.x, varied)
        one_of("table.figure.y", figure.y, varied)
    for name in (figure.x, figure.y) if isinstance(figure, Scatter) else ():
        if metric_of(name).better is None:
            raise UserError(f"figure: no value of {name} is better than another: name another.")
    if len(table.groups) != len(table.group_numbers):
        raise UserError("table.groups and table.group_numbers must have the same length.")


def remarks(rows: Iterable[Row]) -> list[str]:
    """Sentences on runs that diverged, whose curves end early, and on non-finite gradients."""
    ordered = sorted(rows, key=lambda row: row.name)
    seeds = {row.name: ", ".join(map(str, sorted(row.diverged))) for row in ordered}
    diverged = (f"{name} diverged with seed {text}." for name, text in seeds.items() if text)
    return [*diverged, *filter(None, (note(row.name, row.nonfinite) for row in ordered))]


def _spec(target: Target, file: F, names: bool) -> FigureSpec[F]:
    arms, table = _labels(target, names), target.table
    places = target.labels, table.numbers_of_groups, table.baseline
    return FigureSpec(target.name, _title(target), file, arms, *places)


def _trials(target: Target, figure: Scatter) -> pd.DataFrame:
    names = [f"validation/{metric.partition('/')[2]}" for metric in (figure.x, figure.y)]
    points = [
        (*cell, *(float(trial[name]) for name in names))
        for cell, searches in target.searches.items()
        for search in searches
        for trial in trials_of(search)
        if not trial.get("failed") and all(trial.get(name) for name in names)
    ]
    return pd.DataFrame(points, columns=["condition", "arm", "x", "y"])


def _histogram(target: Target, variable: str, records: list[Record]) -> Picture:
    parts, labels = [], target.labels
    for label in labels:
        runs = _runs(target, [r for r in records if target.condition_of(r.config) == label])
        parts.append(histogram_points(runs, variable).assign(panel=label))
    # Concatenating an empty part, whose columns have no types, would change those of the others.
    data = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
    panels = [label for label in labels if label in set(data["panel"])] or labels
    return Picture(draw_histograms(data, _title(target), HISTOGRAMS[variable], panels), data)


def _runs(target: Target, records: list[Record]) -> dict[str, list[Record]]:
    labels = _labels(target)
    runs: dict[str, list[Record]] = {label: [] for label in labels.values()}
    for record in sorted(records, key=lambda record: record.config["seed"]):
        if record.status != DIVERGED:
            runs[labels[target.method_of(record.config)]].append(record)
    return {label: records for label, records in runs.items() if records}


def _labels(target: Target, names: bool = False) -> dict[str, str]:
    given = target.table.figure.labels if target.table.figure else {}
    return {arm: given.get(arm, method_name(arm) if names else arm) for arm in target.table.methods}


def _title(target: Target) -> str:
    if target.scale_label == PAPER_SCALE or target.scale_name != PAPER_SCALE:
        return target.title
    return f"{target.title} (not the paper's runs: {target.scale_label})"


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


def figure_rows(target: Target, runs: Iterable[FlatRun], records: Sequence[Record]) -> list[Row]:
    """The rows of a figure, with what its claims are about; UserError for a series that a record
    does not have. runs: one for each record, with its condition and method."""
    names = dict.fromkeys(c.metric for claim in target.claims for c in _columns(target, claim))
    of_rows = grouped(
        ((run["condition"], run["method"]), {**run, **{n: _value(record, n) for n in names}})
        for run, record in zip(runs, records, strict=True)
    )
    cells = itertools.product(target.labels, target.table.methods)
    return [Row(*cell, CORRECTED, of_rows.get(cell, [])) for cell in cells]


def judge_figure(target: Target, rows: Sequence[Row]) -> list[JudgedClaim]:
    """The claims of a figure, in their order. rows: see `figure_rows`.

    Quantities are as `in` of a claim in a table's file; `<k>` in one stands for each of the
    figure's groups in turn.
    """
    judge = ClaimEvidence(target.labels, rows, {}).judge
    return [
        judge(claim, [Quantity(c.name, (c,)) for c in _columns(target, claim)])
        for claim in target.claims
    ]


def claims_blocks(judged: Sequence[JudgedClaim]) -> tuple[list[PageBlock], list[PageBlock]]:
    """The blocks on claims at the beginning and at the end of a figure's page."""
    if not judged:
        return [], []
    over = {item.claim.over for item in judged}
    by_size = rules_of(item.claim for item in judged)
    rules = [*by_size, SERIES_RULE, *(rule for name, rule in RULES_OVER.items() if name in over)]
    lines = [claims_line(judged), chance_line(judged), power_line(judged)]
    return [[*filter(None, lines)], claims_grid(judged)], [comparisons_grid(judged), *rules]


def _columns(target: Target, claim: RowClaim) -> list[TableColumn]:
    groups = target.table.numbers_of_groups
    series = [
        (text.replace("<k>", group), text.replace("<k>", str(number)))
        for text in claim.quantities
        for group, number in (groups.items() if "<k>" in text else [("", "")])
    ]
    prefix = "" if claim.over == "mean" else f"{claim.over} of "
    return [
        TableColumn(
            f"{prefix}{label}", f"{claim.over} of {name}", 1, None, "higher", label, _margin(name)
        )
        for label, name in series
    ]


def _margin(series: str) -> Margin:
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
    bins, counts = (record.calibration.get(name, {}) for name in ("bins", "histogram"))
    return {
        **{f"bins/{name}": bins[name] for name in bins if name != "count"},
        **{f"histogram/{name}": [n / sum(cells) for n in cells] for name, cells in counts.items()},
    }
