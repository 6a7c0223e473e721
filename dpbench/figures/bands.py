"""Lines over runs that differ by their seed: mean and spread at every x, and a table of them."""

from collections.abc import Iterator

import pandas as pd

from dpbench.tables.grid import NO_VALUE, Grid

FEW = 6
"""Lines of no more points are all in the table; of a longer one its end is."""

NUMBERS = ("mean", "deviation", "low", "high", "runs")


def bands(points: pd.DataFrame, skip_nan: bool) -> pd.DataFrame:
    """A row for each x of each line: its mean, deviation, low and high over runs, and their number.

    points: columns seed and y, and those that name a line, the last of which is x. skip_nan:
    whether a run that is NaN there is left out, or makes the mean NaN. deviation: the
    standard deviation, NaN of a single run.
    """
    names = [name for name in points.columns if name not in ("seed", "y")]
    over_runs = points.groupby(names, sort=False, dropna=False)["y"]
    found = over_runs.agg(["mean", "std", "min", "max", "size"])
    found.columns = NUMBERS
    if not skip_nan:
        lacking = (over_runs.count() < over_runs.size()).to_numpy()
        found.loc[lacking, ["mean", "deviation"]] = float("nan")
    return found.reset_index()


def band_grid(banded: pd.DataFrame, x: str) -> Grid:
    """The points of short lines and the end of long ones, as text; from `bands`.

    x: what x is. What is the same for all lines is left out of their names.
    """
    names = [name for name in banded.columns if name not in (*NUMBERS, "x")]
    told = [name for name in names if banded[name].nunique() > 1]
    rows = [
        (*(str(getattr(row, name)) for name in told), *numbers)
        for _, line in banded.groupby(names, sort=False)
        for row, numbers in _shown(line)
    ]
    head = (*told, x, "mean ± standard deviation (runs)", "mean over all points")
    return Grid("Numbers", head, tuple(rows))


def _shown(line: pd.DataFrame) -> Iterator[tuple]:
    """The rows of a line to be shown, each with its numbers as text."""
    few = len(line) <= FEW
    overall = NO_VALUE if few else _number(line["mean"].mean())
    for row in (line if few else line.tail(1)).itertuples():
        spread = "" if pd.isna(row.deviation) else f" ± {row.deviation:.2g}"
        yield row, (_number(row.x), f"{_number(row.mean)}{spread} ({row.runs})", overall)


def _number(value: float) -> str:
    return NO_VALUE if pd.isna(value) else f"{value:.4g}"
