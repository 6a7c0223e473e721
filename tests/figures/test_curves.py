import math

import numpy as np
import pytest

from dpbench.errors import UserError
from dpbench.figures.bands import bands
from dpbench.figures.curves import CurveFigure, curve_points, draw_curves, panel_of
from dpbench.figures.formats import image
from dpbench.records.record import Record

LOSS = {"title": "loss", "x": "step", "lines": {"loss": "tested/loss"}}
BOTH = {"title": "errors", "x": "step", "lines": {"ECE": "tested/ece", "loss": "tested/loss"}}
AT_R = {"title": "at R", "x": "method.bound", "lines": {"ECE": "test/ece"}, "x_scale": "log"}


def figure(*panels, band="standard deviation", columns=("",)):
    arms = {"plain": "non-private", "r1": "R = 1", "r9": "R = 9"}
    return CurveFigure("toy_fig1", "Toy", band, tuple(map(panel_of, panels)), arms, tuple(columns))


def run(arm, seed, loss, condition=""):
    bound = {"plain": {}, "r1": {"bound": 1.0}, "r9": {"bound": 9.0}}[arm]
    config = {"choices": {"dataset": "toy"}, "seed": seed, "method": bound}
    series = {"step": [0, 5], "tested/loss": [3.0, loss], "tested/ece": [0.5, loss / 10]}
    record = Record(config, {"test/ece": loss / 10}, {}, {}, "complete", diagnostics=series)
    return condition, arm, record


RUNS = [run("plain", 0, 1.0), run("r1", 0, 2.0), run("r1", 1, 4.0), run("r9", 0, 1.5)]


@pytest.fixture
def drawn():
    """drawn(spec, runs): the picture's axes."""

    def make(spec, runs):
        made = draw_curves(spec, bands(curve_points(spec, runs), skip_nan=False))
        assert image(made).startswith(b"\x89PNG\r\n")
        return made.axes

    return make


def test_points_are_those_of_the_records():
    data = curve_points(figure(LOSS, AT_R), RUNS)
    assert len(data) == 4 * 2 + 4
    late = data[(data["panel"] == "loss") & (data["x"] == 5)]
    assert dict(zip(zip(late["arm"], late["seed"], strict=True), late["y"], strict=True)) == {
        ("plain", 0): 1.0, ("r1", 0): 2.0, ("r1", 1): 4.0, ("r9", 0): 1.5,
    }  # fmt: skip
    assert data[data["arm"] == "plain"]["x"].isna().sum() == 1


@pytest.mark.slow
def test_a_line_is_the_mean_and_its_band_the_deviation_or_the_range(drawn):
    for band, ends in (("standard deviation", (3 - 2**0.5, 3 + 2**0.5)), ("range", (2, 4))):
        axis = drawn(figure(LOSS, band=band), RUNS)[0]
        assert [line.get_label() for line in axis.lines] == ["non-private", "R = 1", "R = 9"]
        assert list(axis.lines[1].get_ydata()) == [3, 3]
        shaded = axis.collections[1].get_paths()[0].vertices
        at_end = shaded[shaded[:, 0] == 5][:, 1]
        assert (at_end.min(), at_end.max()) == pytest.approx(ends)
        alone = axis.collections[0].get_paths()[0].vertices
        assert np.isfinite(alone).all()


def test_against_a_setting_private_arms_are_a_line_and_the_other_is_level(drawn):
    axis = drawn(figure(AT_R), RUNS)[0]
    line, level = axis.lines
    assert list(line.get_xdata()) == [1, 9]
    assert list(line.get_ydata()) == pytest.approx([0.3, 0.15])
    assert level.get_label() == "ECE, non-private"
    assert set(level.get_ydata()) == {0.1}
    assert axis.get_xscale() == "log"


def test_only_the_arms_of_a_panel_are_in_it_and_several_lines_are_named(drawn):
    axis = drawn(figure({**BOTH, "arms": ["r1", "r9"]}), RUNS)[0]
    assert [line.get_label() for line in axis.lines] == [
        "R = 1, ECE", "R = 1, loss", "R = 9, ECE", "R = 9, loss",
    ]  # fmt: skip


@pytest.mark.slow
def test_conditions_are_columns_and_one_without_runs_is_left_out(drawn):
    runs = [(*run(arm, 0, 2.0, "wine"),) for arm in ("plain", "r1")]
    spec = figure(LOSS, BOTH, columns=("wine", "snow", "rain"))
    axes = drawn(spec, runs)
    assert [axis.get_title() for axis in axes] == ["wine: loss", "wine: errors"]
    assert [len(axis.lines) for axis in axes] == [2, 4]
    axes = drawn(spec, [*runs, run("r1", 0, 1.0, "snow")])
    assert [axis.get_title() for axis in axes] == [
        "wine: loss", "snow: loss", "wine: errors", "snow: errors",
    ]  # fmt: skip
    assert [len(axis.lines) for axis in axes] == [2, 1, 4, 2]


def test_nan_stays_nan_in_a_mean(drawn):
    axis = drawn(figure(LOSS), [run("r1", 0, 2.0), run("r1", 1, math.nan)])[0]
    assert axis.lines[0].get_ydata()[0] == 3
    assert math.isnan(axis.lines[0].get_ydata()[1])


def test_what_is_missing_or_unknown_is_named():
    with pytest.raises(UserError, match="toy_fig1 needs tested/mce, which the run of r1 lacks"):
        curve_points(figure({**LOSS, "lines": {"MCE": "tested/mce"}}), [run("r1", 0, 1.0)])
    with pytest.raises(UserError, match="toy_fig1 must be standard deviation or range"):
        figure(LOSS, band="error")
