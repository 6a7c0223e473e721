import math
import statistics

import pandas as pd
import pytest

from dpbench.comparison.tables.figures.lines import MAX_POINTS, band_grid, bands

NAN = math.nan


def points(rows, *names):
    return pd.DataFrame(rows, columns=[*names, "seed", "x", "y"])


def test_numbers_of_every_x_are_those_of_its_runs():
    runs = {("a", 0): [1.0, 4.0, 5.5], ("a", 9): [2.0, 2.5], ("b", 0): [3.0]}
    rows = [(line, seed, x, y) for (line, x), ys in runs.items() for seed, y in enumerate(ys)]
    found = bands(points(rows, "line"), skip_nan=False)
    assert len(found) == 3
    for row in found.itertuples():
        ys = runs[row.line, row.x]
        assert (row.mean, row.low, row.high, row.runs) == (
            statistics.mean(ys), min(ys), max(ys), len(ys),
        )  # fmt: skip
        several = len(ys) > 1
        assert row.deviation == pytest.approx(statistics.stdev(ys) if several else NAN, nan_ok=True)


def test_means_and_lines_of_nan_stay_or_are_left_out():
    rows = points([("a", 0, 1, 2.0), ("a", 1, 1, NAN), ("a", 0, 2, 3.0), ("a", 1, 2, 5.0)], "line")
    assert bands(rows, skip_nan=False)["mean"].tolist() == pytest.approx([NAN, 4], nan_ok=True)
    assert math.isnan(bands(rows, skip_nan=False)["deviation"][0])
    assert bands(rows, skip_nan=True)["mean"].tolist() == [2, 4]
    # That of an arm without the setting which is x.
    found = bands(points([("a", 0, NAN, 2.0), ("a", 1, NAN, 4.0)], "arm"), skip_nan=False)
    assert found["mean"].tolist() == [3]
    grid = band_grid(found, "bound")
    assert grid.head[0] == "bound"
    assert grid.rows == (("-", "3 ± 1.4 (2)", "-"),)


def test_short_lines_are_told_whole_and_long_ones_by_their_end_and_mean():
    long = [("loss", arm, 0, x, float(x)) for arm in ("r1", "r9") for x in range(MAX_POINTS + 1)]
    short = [("loss", "plain", seed, 5, 1.5 + seed) for seed in (0, 1)]
    grid = band_grid(bands(points(long + short, "panel", "arm"), skip_nan=False), "step")
    assert grid.head == ("arm", "step", "mean ± standard deviation (runs)", "mean over all points")
    assert grid.rows == (
        ("r1", f"{MAX_POINTS}", f"{MAX_POINTS} (1)", f"{MAX_POINTS / 2:g}"),
        ("r9", f"{MAX_POINTS}", f"{MAX_POINTS} (1)", f"{MAX_POINTS / 2:g}"),
        ("plain", "5", "2 ± 0.71 (2)", "-"),
    )
