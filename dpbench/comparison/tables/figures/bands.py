"""Aggregates lines over seeds: mean and spread at every x, and these numbers as a grid."""

from collections.abc import Iterator

import pandas as pd

from dpbench.comparison.tables.grid import NO_VALUE, Grid

MAX_POINTS = 6
"""Lines of at most this many points are in the grid in full; of longer ones, the last point."""

NUMBERS = ("mean", "deviation", "low", "high", "runs")


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
    """The points of a line that are in the grid, each with its numbers as text."""
    short = len(line) <= MAX_POINTS
    overall = NO_VALUE if short else _number(line["mean"].mean())
    for row in (line if short else line.tail(1)).itertuples():
        spread = "" if pd.isna(row.deviation) else f" ± {row.deviation:.2g}"
        yield row, (_number(row.x), f"{_number(row.mean)}{spread} ({row.runs})", overall)


def _number(value: float) -> str:
    return NO_VALUE if pd.isna(value) else f"{value:.4g}"
