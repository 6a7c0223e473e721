"""Methods in the plane of two metrics: the trials of their searches, final runs, Pareto fronts."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dpbench.comparison.tables.figures.looks import on_paper
from dpbench.comparison.tables.figures.panels import FigureSpec, panels_beside
from dpbench.comparison.tables.grid import NO_VALUE, Grid
from dpbench.comparison.tables.runs import PlacedRecord
from dpbench.learning.metrics.derived import value_of
from dpbench.learning.metrics.registry import metric_of
from dpbench.runs.config.table_file import Scatter
from dpbench.runs.figures.formats import legend_below, symbol, titled
from dpbench.runs.records.divergence import DIVERGED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS, TRIAL = "runs", "trial"
"""The kinds of points: the mean of an arm's runs, and one trial of its search."""

NAMES = ["condition", "arm", "kind", "x", "y", "x_deviation", "y_deviation", "n", "front"]
HIDDEN_SHARE = 0.1
"""The share of trials that may lie outside a panel, on the worse side of either metric."""


ScatterFigure = FigureSpec[Scatter]


def scatter_points(
    spec: ScatterFigure, records: Iterable[PlacedRecord], trials: pd.DataFrame
) -> pd.DataFrame:
    """Every point, in the metrics' own units: columns NAMES; trials: columns condition, arm, x, y.

    Means and standard deviations are over the runs of an arm; NaN if one diverged. front: whether
    no other private arm is at least as good in both metrics and better in one.
    """
    rows = [
        (condition, arm, *(_value(record, metric) for metric in (spec.file.x, spec.file.y)))
        for condition, arm, record in records
    ]
    runs = pd.DataFrame(rows, columns=["condition", "arm", "x", "y"])
    means = pd.DataFrame(_means(spec, runs), columns=NAMES)
    means["front"] = _on_front(spec, means)
    cloud = trials.assign(kind=TRIAL, x_deviation=float("nan"), y_deviation=float("nan"), n=1)
    return pd.concat([means, cloud.assign(front=False)[NAMES]], ignore_index=True)


def _value(record, metric: str) -> float:
    return float("nan") if record.status == DIVERGED else value_of(record.measured, metric)


def _means(spec: ScatterFigure, runs: pd.DataFrame) -> Iterator[tuple]:
    for condition in spec.conditions:
        for arm in spec.arms:
            values = runs[(runs["condition"] == condition) & (runs["arm"] == arm)][["x", "y"]]
            if len(values):
                mean, spread = values.mean(skipna=False), values.std(skipna=False)
                yield condition, arm, RUNS, *mean, *spread, len(values), False


def _on_front(spec: ScatterFigure, means: pd.DataFrame) -> list[bool]:
    # Rounded, as equal means may differ by the order of their sums.
    signs = [metric_of(name).sign for name in (spec.file.x, spec.file.y)]
    gains = means[["x", "y"]].to_numpy().round(9) * signs
    private = (means["arm"] != spec.baseline).to_numpy()
    on_front = []
    for gain, condition, is_private in zip(gains, means["condition"], private, strict=True):
        others = gains[private & (means["condition"] == condition).to_numpy()]
        dominated = ((others >= gain).all(axis=1) & (others > gain).any(axis=1)).any()
        on_front.append(bool(is_private and not dominated and not np.isnan(gain).any()))
    return on_front


def scatter_grid(spec: ScatterFigure, data: pd.DataFrame) -> Grid:
    """Every arm under every condition, with the number of its trials."""
    counts = data[data["kind"] == TRIAL].groupby(["condition", "arm"]).size()
    rows = [
        (
            row.condition,
            spec.arms[row.arm],
            _number(row.x, row.x_deviation, spec.file.x),
            _number(row.y, row.y_deviation, spec.file.y),
            str(row.n),
            str(counts.get((row.condition, row.arm), 0)),
            "yes" if row.front else "",
        )
        for row in data[data["kind"] == RUNS].itertuples()
    ]
    labels = _label(spec.file.x), _label(spec.file.y)
    head = ("condition", "method", *labels, "runs", "trials", "on the front")
    return Grid("Numbers", head, tuple(rows))


def _number(mean: float, deviation: float, name: str) -> str:
    if pd.isna(mean):
        return NO_VALUE
    factor = metric_of(name).factor
    spread = "" if pd.isna(deviation) else f" ± {factor * deviation:.1f}"
    return f"{factor * mean:.1f}{spread}"


def _label(name: str) -> str:
    metric = metric_of(name)
    return f"{metric.label} (%)" if metric.unit == "percent" else metric.label


def draw_scatter(spec: ScatterFigure, data: pd.DataFrame) -> "Figure":
    """The figure, from `scatter_points`; an arm has the same colour and marker in all panels.

    A panel extends to its worst mean, and to all but the worst tenth of the trials in either
    metric; it says how many trials lie outside.
    """
    present = {*data["condition"]}
    conditions = [c for c in spec.conditions if c in present] or spec.conditions
    labels = _label(spec.file.x), _label(spec.file.y)
    figure, axes = panels_beside(len(conditions), 1.1, 2.3, labels)
    for axis, condition in zip(axes, conditions, strict=True):
        _panel(axis, spec, data[data["condition"] == condition])
        axis.set_title(symbol(condition))
    legend_below(figure, axes)
    return titled(figure, spec.title)


def _panel(axis, spec: ScatterFigure, data: pd.DataFrame) -> None:
    scaled = data.assign(
        **{name: data[name] * metric_of(spec.file.x).factor for name in ("x", "x_deviation")},
        **{name: data[name] * metric_of(spec.file.y).factor for name in ("y", "y_deviation")},
    )
    means, trials = (scaled[scaled["kind"] == kind] for kind in (RUNS, TRIAL))
    looks = on_paper(spec.arms)
    for arm, label in spec.arms.items():
        _arm(axis, means[means["arm"] == arm], trials[trials["arm"] == arm], looks[arm], label)
    front = means[means["front"]].sort_values("x")
    # A ring around each point, as a front of a single one has no line.
    axis.plot(
        front["x"], front["y"], "--o", color="black", linewidth=1, label="Pareto front",
        markersize=9, markerfacecolor="none",
    )  # fmt: skip
    axis.grid(alpha=0.3)
    _limit(axis, spec, means, trials)


def _arm(axis, mean: pd.DataFrame, trials: pd.DataFrame, look: dict[str, str], label: str) -> None:
    color, marker = look["color"], look["marker"]
    axis.scatter(trials["x"], trials["y"], s=7, color=color, marker=marker, alpha=0.3, linewidths=0)
    if len(mean):
        x, y = (mean[f"{name}_deviation"].fillna(0) for name in ("x", "y"))
        axis.errorbar(
            mean["x"], mean["y"], y, x, fmt=marker, color=color, markeredgecolor="black",
            markeredgewidth=0.5, markersize=5, elinewidth=1, label=label, zorder=3,
        )  # fmt: skip


def _limit(axis, spec: ScatterFigure, means: pd.DataFrame, trials: pd.DataFrame) -> None:
    """Leave the worst trials out of a panel, as they would squeeze all others into a corner."""
    if trials.empty:
        return
    inside = pd.Series(True, trials.index)
    axes = (("x", spec.file.x, axis.get_xlim()), ("y", spec.file.y, axis.get_ylim()))
    for name, metric, ends in axes:
        sign = metric_of(metric).sign
        tenth = (sign * trials[name]).quantile(HIDDEN_SHARE, interpolation="lower")
        worst = sign * min((sign * means[name]).min(), tenth)
        best = max(ends) if sign > 0 else min(ends)
        axis.set(**{f"{name}lim": sorted((worst - 0.05 * (best - worst), best))})
        inside &= sign * trials[name] >= sign * worst
    if outside := (~inside).sum():
        text = f"{outside} of {len(trials)} trials lie outside"
        axis.text(0.02, 0.97, text, transform=axis.transAxes, va="top")
