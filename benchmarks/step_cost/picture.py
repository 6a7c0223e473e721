"""Draws the measurements."""

import pandas as pd

from dpbench.runs.figures.formats import image, paper_figure

from .report import undisturbed


def draw(data: pd.DataFrame) -> bytes:
    """A PNG: one panel per case, one point per contender, with whiskers from minimum to maximum."""
    panels = list(undisturbed(data).dropna(subset="ratio").groupby("case", sort=False))
    if not panels:
        figure = paper_figure(2, 1)
        figure.text(0.5, 0.5, "Every case was disturbed, or could not be timed.", ha="center")
        return image(figure)
    height = 0.6 + sum(0.45 + 0.15 * len(rows) for _, rows in panels)
    figure = paper_figure(2, height)
    ratios = [len(rows) + 2 for _, rows in panels]
    axes = figure.subplots(len(panels), sharex=True, squeeze=False, height_ratios=ratios)
    for axis, (name, rows) in zip(axes[:, 0], panels, strict=True):
        _points(axis, f"{name}, batch {rows['batch_size'].iloc[0]}", rows)
    axes[-1, 0].set_xlabel("time of a step over that of a plain step")
    return image(figure)


def draw_commands(data: pd.DataFrame) -> bytes:
    """A PNG: one point per command, with whiskers from minimum to maximum."""
    timed = data.dropna(subset="ratio").assign(contender=data["case"])
    figure = paper_figure(2, 0.9 + 0.16 * len(timed))
    axis = figure.subplots()
    _points(axis, "Whole commands", timed)
    axis.set_xlabel("time over that of importing torch")
    return image(figure)


def _points(axis, title: str, rows: pd.DataFrame) -> None:
    spread = [rows["ratio"] - rows["ratio_min"], rows["ratio_max"] - rows["ratio"]]
    colours = ["tab:blue" if name.startswith("ours") else "tab:grey" for name in rows["contender"]]
    # No bars: on a logarithmic axis their length means nothing.
    for name, ratio, low, high, colour in zip(
        rows["contender"], rows["ratio"], *spread, colours, strict=True
    ):
        axis.errorbar(ratio, name, xerr=[[low], [high]], fmt="o", markersize=4, color=colour)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xscale("log")
    axis.invert_yaxis()
    axis.set_title(title)
    axis.grid(axis="x", alpha=0.3)


def draw_depth(data: pd.DataFrame) -> bytes:
    """A PNG: milliseconds per step over depth, one line per method, bands from min to max."""
    figure = paper_figure(1, 2.8)
    axis = figure.subplots()
    depth = data["case"].str.extract(r"(\d+)$")[0].astype(int)
    timed = data.assign(depth=depth).dropna(subset="ms")
    for name, rows in timed.sort_values("depth").groupby("contender", sort=False):
        axis.plot(rows["depth"], rows["ms"], marker="o", label=name)
        axis.fill_between(rows["depth"], rows["ms_min"], rows["ms_max"], alpha=0.2)
    axis.set_xlabel("hidden layers")
    axis.set_ylabel("ms per step")
    axis.legend()
    axis.grid(alpha=0.3)
    return image(figure)
