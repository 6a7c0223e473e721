"""Figures of calibration: reliability diagrams and histograms, and the numbers in them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dpbench.runs.figures.formats import SCREEN_DPI, image, legend_below, paper_figure, titled
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ByColumn = Mapping[str, Sequence[Record]]
"""Records by the label of their column: usually those of one method, over seeds."""

HISTOGRAMS = {"confidence": "confidence", "true_class": "probability of the true class"}

BIN_COLUMNS = ("count", "confidence", "accuracy")


def reliability_points(runs: ByColumn) -> pd.DataFrame:
    """Every bin of every run: columns label, seed, low, high, count, and the means confidence and
    accuracy, NaN for an empty bin. UserError for a run whose record lacks them."""
    return _points(runs, "bins", {name: name for name in BIN_COLUMNS})


def histogram_points(runs: ByColumn, variable: str) -> pd.DataFrame:
    """Every cell of every run's histogram: columns label, seed, low, high, count. variable:
    "confidence" or "true_class". Raises UserError for a run whose record lacks it."""
    return _points(runs, "histogram", {variable: "count"})


def _points(runs: ByColumn, part: str, names: Mapping[str, str]) -> pd.DataFrame:
    """Rows for equal bins of [0, 1]. names: of columns, by those in a part of the calibration."""
    rows: list[tuple] = []
    for label, record in ((label, record) for label, records in runs.items() for record in records):
        if not record.calibration:
            raise UserError(
                f"the record {record.digest} of {label} has no calibration: the run diverged, has "
                "no classes, or is too old; repeat it with again=true."
            )
        columns = [record.calibration[part][name] for name in names]
        edges = np.arange(len(columns[0]) + 1) / len(columns[0])
        bins = zip(edges[:-1], edges[1:], *columns, strict=True)
        rows += ((label, record.config["seed"], *each) for each in bins)
    return pd.DataFrame(rows, columns=["label", "seed", "low", "high", *names.values()])


def draw_reliability(data: pd.DataFrame, title: str) -> "Figure":
    """Reliability diagrams, from `reliability_points`, a column per label, whose runs are pooled:
    above, accuracy by bin and its gap to the mean confidence; below, the share of the examples."""
    labels = list(dict.fromkeys(data["label"]))
    figure = paper_figure(len(labels), 3.1)
    axes = figure.subplots(
        2, len(labels), sharex=True, sharey="row", squeeze=False, height_ratios=[3, 1]
    )
    for (above, below), label in zip(axes.T, labels, strict=True):
        _diagram(above, below, _pooled(data[data["label"] == label]))
        above.set_title(label, parse_math=False)
        below.set_xlabel("confidence")
    axes[0][0].set_ylabel("accuracy")
    axes[1][0].set_ylabel("share")
    axes[0][0].legend()
    return titled(figure, title)


def reliability_picture(data: pd.DataFrame, title: str) -> bytes:
    """The diagram of one label for a screen, as PNG. Without a search for the best layout, which
    would take as long as all else."""
    figure = draw_reliability(data, title)
    figure.set_layout_engine(None)
    figure.subplots_adjust(left=0.19, right=0.95, bottom=0.1, top=0.87, hspace=0.12)
    return image(figure, dpi=SCREEN_DPI)


def _pooled(data: pd.DataFrame) -> pd.DataFrame:
    means = ["confidence", "accuracy"]
    sums = data.assign(**{m: (data[m] * data["count"]).fillna(0) for m in means})
    sums = sums.groupby(["low", "high"], as_index=False)[["count", *means]].sum()
    filled = sums["count"].where(sums["count"] > 0)
    return sums.assign(**{m: sums[m] / filled for m in means})


def _diagram(above, below, bins: pd.DataFrame) -> None:
    width, share = bins["high"] - bins["low"], bins["count"] / bins["count"].sum()
    ece = (share * (bins["accuracy"] - bins["confidence"]).abs()).sum()
    at = {"x": bins["low"], "width": width, "align": "edge", "edgecolor": "black"}
    above.bar(height=bins["accuracy"], color="tab:blue", linewidth=0.6, label="accuracy", **at)
    gap = bins["confidence"] - bins["accuracy"]
    above.bar(
        height=gap, bottom=bins["accuracy"], color="tab:red", alpha=0.35, hatch="//",
        linewidth=0.6, label="gap", **at,
    )  # fmt: skip
    above.plot([0, 1], [0, 1], "k--", linewidth=1)
    box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none"}
    above.text(0.97, 0.04, f"ECE {100 * ece:.1f}%", ha="right", bbox=box)
    above.set_ylim(0, 1)
    below.bar(height=share, color="tab:gray", linewidth=0.6, **at)
    below.set_xlim(0, 1)


def draw_histograms(data: pd.DataFrame, title: str, x: str, panels: Sequence[str]) -> "Figure":
    """Histograms, from `histogram_points`: one line per label, shares of the examples.

    x: label of the x-axis. panels: values of the column `panel`, side by side, even without runs.
    The runs of a label are pooled; the y-axis is logarithmic, since most examples may be in one
    cell.
    """
    figure = paper_figure(len(panels), 2.2)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    # A label has the same colour in all panels.
    colors = {label: f"C{i}" for i, label in enumerate(dict.fromkeys(data["label"]))}
    for axis, panel in zip(axes, panels, strict=True):
        _histograms(axis, data[data["panel"] == panel], colors)
        axis.set_title(panel, parse_math=False)
        axis.set_xlabel(x)
    axes[0].set_ylabel("share")
    legend_below(figure, [axis for axis in axes if axis.get_visible()])
    return titled(figure, title)


def _histograms(axis, data: pd.DataFrame, colors: Mapping[str, str]) -> None:
    if data.empty:
        axis.set_visible(False)
        return
    for label, rows in data.groupby("label", sort=False):
        cells = rows.groupby(["low", "high"], as_index=False)["count"].sum()
        ends = [*cells["low"], cells["high"].iloc[-1]]
        shares = cells["count"] / cells["count"].sum()
        axis.stairs(shares, ends, label=label, linewidth=1.4, color=colors[label])
    axis.set_yscale("log")
    axis.grid(alpha=0.3)
