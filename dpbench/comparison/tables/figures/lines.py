"""Line figures: series over training, or results over a setting, one panel beside another."""

import statistics
import textwrap
from collections.abc import Iterable, Iterator
from itertools import cycle, product
from typing import TYPE_CHECKING

import pandas as pd

from dpbench.comparison.tables.conditions import setting
from dpbench.comparison.tables.figures.looks import on_paper
from dpbench.comparison.tables.figures.panels import FigureSpec
from dpbench.comparison.tables.grid import NO_VALUE, Grid
from dpbench.comparison.tables.runs import PlacedRecord
from dpbench.learning.metrics.registry import metric_of
from dpbench.runs.config.search_path import options
from dpbench.runs.config.table_file import AxisScale, Lines, Panel
from dpbench.runs.figures.formats import POINTS, legend_below, paper_figure, symbol, titled
from dpbench.runs.records.digest import protocol_of
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENTRY, FITTING = 0.16, 4
"""The height of an entry in a legend, in inches, and the number that fits below a panel."""

STYLES = ("-", "--", "-.", ":")
WORDS = 22
"""The most characters in a line beside a row of panels."""

NARROW = 4
"""So many panels side by side have headings of several lines."""

MAX_MARKERS = 9
"""About so many points of a line have markers."""


MAX_POINTS = 6
"""Lines of at most this many points are in the grid in full; of longer ones, the last point."""

NUMBERS = ("mean", "deviation", "low", "high", "runs")

LineFigure = FigureSpec[Lines]


def _lines_of(spec: LineFigure, panel: Panel) -> Iterator[tuple[str, str]]:
    for label, series in panel.lines.items():
        if "<k>" not in series:
            yield label, series
            continue
        for group, number in spec.groups.items():
            yield label.replace("<group>", group), series.replace("<k>", str(number))


def line_points(spec: LineFigure, records: Iterable[PlacedRecord]) -> pd.DataFrame:
    """Every point of every line: columns condition, panel, arm, seed, line, x, y; with a column of
    plots for each method: panel, method, seed, line, x, y.

    x is NaN for an arm without the setting on the x-axis. Raises UserError for a series that a
    record does not have, and for a line that would join runs of different protocols.
    """
    names = ["condition", "panel", "arm", "seed", "line", "x", "y"]
    runs = list(records)
    for panel in spec.file.panels:
        _check_one_study(spec, panel, runs)
    rows = [point for named in runs for point in _points(spec, *named)]
    data = pd.DataFrame(rows, columns=names)
    if spec.file.columns == "method":
        data = data.drop(columns="condition").rename(columns={"arm": "method"})
    return data.sort_values([*data.columns[:-1]], kind="stable", ignore_index=True)


def _check_one_study(spec: LineFigure, panel: Panel, records: Iterable[PlacedRecord]) -> None:
    protocols: dict[str, set[str]] = {}
    for condition, arm, record in records:
        over_setting = not panel.over_time and panel.x not in record.diagnostics
        if over_setting and (panel.arms is None or arm in panel.arms):
            column = arm if spec.file.columns == "method" else condition
            protocols.setdefault(column, set()).add(protocol_of(record.config, panel.x))
    if several := [column for column, names in protocols.items() if len(names) > 1]:
        raise UserError(
            f"{spec.name}: {panel.title!r} would join runs of {several[0] or 'arms'} that differ "
            f"in more than {panel.x} and their methods: leave some out of the panel's arms."
        )


def _points(spec: LineFigure, condition: str, arm: str, record: Record) -> Iterator[tuple]:
    measured: dict[str, list[float] | float] = {**record.metrics, **record.diagnostics}
    for panel in spec.file.panels:
        if panel.arms is not None and arm not in panel.arms:
            continue
        for label, series in _lines_of(spec, panel):
            if series not in measured:
                raise UserError(f"{spec.name} needs {series}, which the run of {arm} lacks.")
            try:
                line = _line_of(panel.x, record, measured[series])
            except KeyError:
                raise UserError(
                    f"{spec.name} needs {panel.x} as x, which the run of {arm} lacks."
                ) from None
            for x, y in line:
                yield condition, panel.title, arm, record.config["seed"], label, x, y


def _line_of(x: str, record: Record, values: list[float] | float) -> Iterable[tuple]:
    """The points of one run in one line; NaN stays NaN in a mean.

    For a setting that the run lacks, the mean of a series raises KeyError, and a metric has x NaN.
    """
    if isinstance(values, list):
        if x in record.diagnostics:
            return zip(record.diagnostics[x], values, strict=True)
        return [(setting(record.config, x), statistics.fmean(values))]
    try:
        return [(setting(record.config, x), values)]
    except KeyError:
        return [(float("nan"), values)]


def bands(points: pd.DataFrame, skip_nan: bool) -> pd.DataFrame:
    """A row for each x of each line: mean, deviation, low and high over runs, and their number.

    points: columns seed and y, those that identify a line, and x. skip_nan: whether runs with NaN
    are left out, or make the mean NaN. deviation: the standard deviation, NaN for a single run.
    """
    names = [name for name in points.columns if name not in ("seed", "y")]
    over_runs = points.groupby(names, sort=False, dropna=False)["y"]
    statistics = over_runs.agg(["mean", "std", "min", "max", "size"])
    statistics.columns = NUMBERS
    if not skip_nan:
        has_nan = (over_runs.count() < over_runs.size()).to_numpy()
        statistics.loc[has_nan, ["mean", "deviation"]] = float("nan")
    return statistics.reset_index()


def band_grid(data: pd.DataFrame, x: str) -> Grid:
    """The points of short lines and the last point of long ones, as text; data: from `bands`.

    x: the heading of the column x. Columns that are the same for all lines are left out.
    """
    names = [name for name in data.columns if name not in (*NUMBERS, "x")]
    varying = [name for name in names if data[name].nunique() > 1]
    rows = [
        (*(str(getattr(row, name)) for name in varying), *numbers)
        for _, line in data.groupby(names, sort=False)
        for row, numbers in _rows(line)
    ]
    head = (*varying, x, "mean ± standard deviation (runs)", "mean over all points")
    return Grid("Numbers", head, tuple(rows))


def _rows(line: pd.DataFrame) -> Iterator[tuple]:
    short = len(line) <= MAX_POINTS
    overall = NO_VALUE if short else _number(line["mean"].mean())
    for row in (line if short else line.tail(1)).itertuples():
        spread = "" if pd.isna(row.deviation) else f" ± {row.deviation:.2g}"
        yield row, (_number(row.x), f"{_number(row.mean)}{spread} ({row.runs})", overall)


def _number(value: float) -> str:
    return NO_VALUE if pd.isna(value) else f"{value:.4g}"


def draw_lines(spec: LineFigure, data: pd.DataFrame) -> "Figure":
    """The figure: a row for each panel, or the panels side by side where there is one column.

    data: the `bands` of `line_points`.
    """
    declared = spec.arms if spec.file.columns == "method" else {c: c for c in spec.conditions}
    present = {*data[spec.file.columns]}
    columns = {c: label for c, label in declared.items() if c in present} or declared
    single = len(columns) == 1
    rows, width = (1, len(spec.file.panels)) if single else (len(spec.file.panels), len(columns))
    figure = paper_figure(width, 1.2 + 1.5 * rows)
    shared = spec.file.columns == "method" and not single
    axes = figure.subplots(
        rows, width, squeeze=False, sharex=shared, sharey="row" if shared else "none"
    )
    for axis, (panel, column) in zip(axes.flat, product(spec.file.panels, columns), strict=True):
        inside = (data["panel"] == panel.title) & (data[spec.file.columns] == column)
        _plot(axis, spec, panel, data[inside])
        if shared:
            axis.label_outer()
    if single:
        (label,) = columns.values()
        prefix = f"{label}: " if len(declared) > 1 else ""
        _label(axes[0], "title", [prefix + panel.title for panel in spec.file.panels])
    else:
        words = 2 * WORDS if width < NARROW else WORDS // 2 + 6
        names = (textwrap.fill(symbol(label), words) for label in columns.values())
        _label(axes[0], "title", names)
        titles = (textwrap.fill(panel.title, WORDS) for panel in spec.file.panels)
        _label(axes[:, 0], "ylabel", titles)
    several = bool(data["runs"].max() > 1)
    _legends(figure, axes, f"bands: {spec.file.band} over seeds" if several else "")
    return titled(figure, spec.title)


def _legends(figure: "Figure", axes, bands: str) -> None:
    visible = [axis for axis in axes.flat if axis.get_visible()]
    if legend_below(figure, visible, bands):
        return
    figure.supxlabel(bands, fontsize=POINTS)
    if len(axes) == 1:
        entries = max(len(axis.get_legend_handles_labels()[1]) for axis in visible)
        figure.set_figheight(figure.get_figheight() + ENTRY * max(0, entries - FITTING))
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.3)}
    for axis in visible:
        if len(axes) == 1 or axis in axes[:, 0]:
            axis.legend(**(below if len(axes) == 1 else {}), handlelength=1.5)


def _label(axes, what: str, labels: Iterable[str]) -> None:
    for axis, label in zip(axes, labels, strict=True):
        axis.set(**{what: label})


def _plot(axis, spec: LineFigure, panel: Panel, data: pd.DataFrame) -> None:
    if data.empty:
        axis.set_visible(False)
        return
    for label, look, line in _lines(spec, panel, data):
        _line_with_band(axis, line[line["x"].notna()], spec.file.band, look, label)
        for point in line[line["x"].isna()].itertuples():
            arm = point.method if spec.file.columns == "method" else point.arm
            name = f"{label}, {spec.arms[arm]}"
            axis.axhline(point.mean, color=look["color"], linestyle=":", label=name)
    axis.set_xlabel(symbol(panel.x_label))
    _set_scale(axis.set_xscale, panel.x_scale)
    _set_scale(axis.set_yscale, panel.y_scale)
    if all(metric_of(series).unit == "percent" for series in panel.lines.values()):
        axis.yaxis.set_major_formatter(lambda value, place: f"{100 * value:.3g}%")
    axis.grid(alpha=0.3)


def _lines(
    spec: LineFigure, panel: Panel, data: pd.DataFrame
) -> Iterator[tuple[str, dict[str, str], pd.DataFrame]]:
    """Label, look and points of every line of a plot.

    Over time with several arms in a plot, each arm has a colour, a method that of all pictures;
    otherwise each line has one, and over a setting a line passes through the arms.
    """
    styles = dict(zip((label for label, _ in _lines_of(spec, panel)), cycle(STYLES), strict=False))
    if spec.file.columns == "method" or not panel.over_time:
        for number, (label, style) in enumerate(styles.items()):
            look = {"color": f"C{number}", "marker": "o", "linestyle": style}
            yield label, look, data[data["line"] == label]
        return
    arms = [arm for arm in spec.arms if panel.arms is None or arm in panel.arms]
    looks = dict(on_paper(arms)) if {*arms} <= {*options("method")} else {}
    for (number, arm), (label, style) in product(enumerate(arms), styles.items()):
        line = data[(data["arm"] == arm) & (data["line"] == label)]
        name = f"{spec.arms[arm]}, {label}" if len(styles) > 1 else spec.arms[arm]
        look = looks.get(arm, {"color": f"C{number}", "marker": "o"})
        yield name, {**look, "linestyle": style}, line


def _line_with_band(axis, data: pd.DataFrame, band: str, look: dict[str, str], label: str) -> None:
    if data.empty:
        return
    data = data.sort_values("x")  # over a setting, the points come from different arms
    x, mean = data["x"], data["mean"]
    every = 1 + len(data) // MAX_MARKERS
    axis.plot(x, mean, **look, label=label, linewidth=1.2, markersize=3.5, markevery=every)
    if band == "range":
        low, high = data["low"], data["high"]
    else:
        spread = data["deviation"].fillna(0)  # a single run has none
        low, high = mean - spread, mean + spread
    axis.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)


def _set_scale(set_scale, scale: AxisScale) -> None:
    set_scale(scale.removesuffix("2"), **({"base": 2} if scale == "log2" else {}))
