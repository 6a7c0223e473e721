"""Heat maps: final metrics of runs over two of their settings."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from dpbench.comparison.tables.conditions import setting
from dpbench.comparison.tables.figures.panels import panels_beside
from dpbench.comparison.tables.grid import Grid, number
from dpbench.learning.metrics.metric import Metric
from dpbench.learning.metrics.registry import metric_of
from dpbench.runs.config.table_file import Heat
from dpbench.runs.figures.formats import POINTS, symbol, titled
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def heat_points(records: Iterable[Record], heat: Heat) -> pd.DataFrame:
    """Every cell of every panel and run: columns panel, x, y, seed, value; UserError for a metric
    that a record does not have."""
    rows = []
    for record in records:
        at = (float(setting(record.config, heat.x)), float(setting(record.config, heat.y)))
        for title, metric in heat.panels.items():
            if metric not in record.metrics:
                raise UserError(f"the run {record.digest} has no {metric} for the panel {title}.")
            rows.append((title, *at, record.config["seed"], record.metrics[metric]))
    data = pd.DataFrame(rows, columns=["panel", "x", "y", "seed", "value"])
    return data.sort_values(["panel", "x", "y", "seed"], kind="stable", ignore_index=True)


def draw_heat(data: pd.DataFrame, title: str, heat: Heat) -> "Figure":
    """Heat maps, from `heat_points`: means over the seeds in the metric's unit, from dark for the
    worst to bright for the best; NaN, as after a diverged run, is an empty cell that says so."""
    labels = symbol(heat.x), symbol(heat.y)
    figure, axes = panels_beside(len(heat.panels), 0.5, 2.5, labels, sharey=True)
    for axis, (panel, metric) in zip(axes, heat.panels.items(), strict=True):
        kind = metric_of(metric)
        _cells(axis, _means(data, panel, kind), kind)
        axis.set_title(_heading(panel, kind))
    return titled(figure, title)


def heat_grids(data: pd.DataFrame, heat: Heat) -> tuple[Grid, ...]:
    """The numbers of every map, from `heat_points`, in increasing order of settings."""
    corner = f"{heat.y}, and {heat.x}"
    return tuple(_grid(data, panel, metric_of(name), corner) for panel, name in heat.panels.items())


def _grid(data: pd.DataFrame, panel: str, metric: Metric, corner: str) -> Grid:
    means = _means(data, panel, metric)
    head = (corner, *(f"{value:g}" for value in means.columns))
    rows = tuple(
        (f"{at:g}", *(number(v, metric.digits) for v in row)) for at, row in means.iterrows()
    )
    return Grid(_heading(panel, metric), head, rows)


def _heading(panel: str, metric: Metric) -> str:
    return f"{panel} (%)" if metric.unit == "percent" else panel


def _means(data: pd.DataFrame, panel: str, metric: Metric) -> pd.DataFrame:
    """Means over the seeds in the unit shown, y by row and x by column; NaN if any run has NaN."""
    cells = data[data["panel"] == panel].groupby(["y", "x"])["value"]
    return metric.factor * cells.agg(lambda v: v.mean(skipna=False)).unstack("x")


def _cells(axis, grid: pd.DataFrame, metric: Metric) -> None:
    lower_is_better = metric.better == "lower"
    colors = "viridis_r" if lower_is_better else "viridis"
    image = axis.imshow(grid, cmap=colors, origin="lower", aspect="auto")
    axis.set_xticks(range(grid.shape[1]), [f"{value:g}" for value in grid.columns], rotation=45)
    axis.set_yticks(range(grid.shape[0]), [f"{value:g}" for value in grid.index])
    middle = sum(image.get_clim()) / 2
    size = min(POINTS, 60 / grid.shape[1])
    for row, values in enumerate(grid.to_numpy()):
        for column, value in enumerate(values):
            text = number(value, metric.digits)
            bright = value != value or (value < middle if lower_is_better else value > middle)
            color = "black" if bright else "white"
            axis.text(column, row, text, ha="center", va="center", color=color, fontsize=size)
