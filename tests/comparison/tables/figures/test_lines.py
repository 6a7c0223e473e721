import math
import struct
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from dpbench.comparison.tables.figures.lines import bands, draw_lines, line_points
from dpbench.comparison.tables.figures.looks import on_paper
from dpbench.comparison.tables.figures.panels import FigureSpec
from dpbench.runs.config.search_path import searching
from dpbench.runs.config.table_file import Lines, Panel
from dpbench.runs.figures.formats import image, images
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

LOSS = Panel("loss", "step", {"loss": "tested/loss"})
ERRORS = Panel("errors", "step", {"ECE": "tested/ece", "loss": "tested/loss"})
AT_R = Panel("at R", "method.bound", {"ECE": "test/ece"}, x_scale="log")
BY_ARM = FigureSpec(
    name="toy_fig1",
    title="Toy: arms (Figure 1)",
    file=Lines(columns="condition", band="standard deviation", panels=[LOSS, AT_R]),
    arms={"plain": "non-private", "r1": "R = 1", "r9": "R = 9"},
    conditions=("",),
    groups={},
)
BY_METHOD = FigureSpec(
    name="toy_fig2",
    title="Toy: risk (Figure 2)",
    file=Lines(
        columns="method",
        band="range",
        panels=[
            Panel("risk", "step", {"<group>": "step/R/<k>"}),
            Panel("gap", "step", {"gap": "step/gap", "bound": "step/bound"}),
        ],
    ),
    arms={"sgd": "SGD", "dpsgd": "DP-SGD"},
    conditions=("",),
    groups={"two": 2, "eight": 8},
)


def with_panels(figure, *panels, band="standard deviation", **changes):
    file = structs.replace(figure.file, panels=[*panels], band=band)
    return replace(figure, file=file, **changes)


NAMES = {"dataset": "digits", "model": "mlp", "method": "dpsgd"}


def run(arm, seed=0, loss=2.0, condition=""):
    bound = {"plain": {}, "r1": {"bound": 1.0}, "r9": {"bound": 9.0}}[arm]
    series = {"step": [0, 5], "tested/loss": [3.0, loss], "tested/ece": [0.5, loss / 10]}
    return condition, arm, record(bound, seed, {"test/ece": loss / 10}, series)


def grouped_run(method="sgd", seed=0, batch_size=64, **changes):
    series = {
        "step": [0, 50],
        "step/R/2": [0.5 + seed, 0.25],
        "step/R/8": [1.5, math.nan],
        "step/gap": [1.0, 2.0],
        "step/bound": [-1.0, -2.0],
    }
    return "", method, record({}, seed, {}, series | changes, batch_size)


def record(method, seed, metrics, series, batch_size=64):
    config = {"seed": seed, "method": method, "batch_size": batch_size, "choices": NAMES}
    return Record(config, metrics, {}, {}, "complete", diagnostics=series)


RUNS = [run("plain", 0, 1.0), run("r1", 0, 2.0), run("r1", 1, 4.0), run("r9", 0, 1.5)]
GROUPED = [grouped_run(method, seed) for method in ("sgd", "dpsgd") for seed in (0, 1)]


def drawn(spec, runs):
    return draw_lines(spec, bands(line_points(spec, runs), skip_nan=spec.file.columns == "method"))


def axes_of(*panels, runs=RUNS, **changes):
    """The axes of a drawn figure with these panels."""
    figure = drawn(with_panels(BY_ARM, *panels, **changes), runs)
    assert image(figure).startswith(b"\x89PNG\r\n")
    return figure.axes


def test_points_are_those_of_the_records():
    data = line_points(BY_ARM, RUNS)
    assert list(data.columns) == ["condition", "panel", "arm", "seed", "line", "x", "y"]
    assert len(data) == 4 * 2 + 4
    late = data[(data["panel"] == "loss") & (data["x"] == 5)]
    assert dict(zip(zip(late["arm"], late["seed"], strict=True), late["y"], strict=True)) == {
        ("plain", 0): 1.0, ("r1", 0): 2.0, ("r1", 1): 4.0, ("r9", 0): 1.5,
    }  # fmt: skip
    assert data[data["arm"] == "plain"]["x"].isna().sum() == 1


def test_every_group_has_a_line():
    data = line_points(BY_METHOD, GROUPED)
    assert list(data.columns) == ["panel", "method", "seed", "line", "x", "y"]
    assert len(data) == 4 * 4 * 2
    mine = data[(data["method"] == "dpsgd") & (data["seed"] == 1) & (data["x"] == 0)]
    assert dict(zip(zip(mine["panel"], mine["line"], strict=True), mine["y"], strict=True)) == {
        ("risk", "two"): 1.5,
        ("risk", "eight"): 1.5,
        ("gap", "gap"): 1.0,
        ("gap", "bound"): -1.0,
    }
    late = data[(data["line"] == "eight") & (data["x"] == 50)]
    assert late["y"].isna().all()


def test_over_a_setting_a_run_is_one_point_the_mean_of_its_series():
    panel = Panel("gap", "batch_size", {"gap": "step/gap"}, x_scale="log2")
    large = grouped_run(seed=1, batch_size=256, **{"step/gap": [5.0, 6.0]})
    spec = with_panels(BY_METHOD, panel)
    data = line_points(spec, [grouped_run(), large])
    assert list(zip(data["x"], data["y"], strict=True)) == [(64, 1.5), (256, 5.5)]
    (axis,) = drawn(spec, [grouped_run(), large]).axes
    assert axis.get_xscale() == "log"
    assert axis.xaxis.get_transform().base == 2


@pytest.mark.parametrize(("spec", "runs"), [(BY_ARM, RUNS), (BY_METHOD, GROUPED)])
def test_the_order_of_the_records_changes_nothing(spec, runs):
    assert line_points(spec, runs).equals(line_points(spec, runs[::-1]))


def test_series_and_axes_that_are_missing_are_named():
    lacking = grouped_run("dpsgd")
    del lacking[2].diagnostics["step/R/8"]
    with pytest.raises(UserError, match="toy_fig2 needs step/R/8, which the run of dpsgd lacks"):
        line_points(BY_METHOD, [grouped_run(), lacking])
    spec = with_panels(BY_ARM, structs.replace(LOSS, lines={"MCE": "tested/mce"}))
    with pytest.raises(UserError, match="toy_fig1 needs tested/mce, which the run of r1 lacks"):
        line_points(spec, [run("r1")])
    spec = with_panels(BY_ARM, structs.replace(LOSS, x="stpe"))
    with pytest.raises(UserError, match="toy_fig1 needs stpe as x, which the run of r1 lacks"):
        line_points(spec, [run("r1")])


def test_no_line_over_a_setting_joins_two_studies():
    of_16, of_64 = run("r1"), run("r9")
    of_16[2].config["batch_size"] = 16
    with pytest.raises(UserError, match="'at R' would join runs of arms that differ in"):
        line_points(BY_ARM, [of_16, of_64])
    other_rate = run("r1")
    other_rate[2].config["optimizer"] = {"lr": 9.0}
    assert len(line_points(BY_ARM, [other_rate, of_64]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("band", "ends"), [("standard deviation", (3 - 2**0.5, 3 + 2**0.5)), ("range", (2, 4))]
)
def test_a_line_is_the_mean_and_its_band_the_deviation_or_the_range(band, ends):
    (axis,) = axes_of(LOSS, band=band)
    assert [line.get_label() for line in axis.lines] == ["non-private", "R = 1", "R = 9"]
    assert list(axis.lines[1].get_ydata()) == [3, 3]
    shaded = axis.collections[1].get_paths()[0].vertices
    at_end = shaded[shaded[:, 0] == 5][:, 1]
    assert (at_end.min(), at_end.max()) == pytest.approx(ends)
    assert np.isfinite(axis.collections[0].get_paths()[0].vertices).all()


def test_against_a_setting_private_arms_are_a_line_and_the_other_is_level():
    (axis,) = axes_of(AT_R)
    line, level = axis.lines
    assert list(line.get_xdata()) == [1, 9]
    assert list(line.get_ydata()) == pytest.approx([0.3, 0.15])
    assert level.get_label() == "ECE, non-private"
    assert set(level.get_ydata()) == {0.1}
    assert axis.get_xscale() == "log"


def test_only_the_arms_of_a_panel_are_in_it_and_several_lines_are_named():
    (axis,) = axes_of(structs.replace(ERRORS, arms=["r1", "r9"]))
    assert [line.get_label() for line in axis.lines] == [
        "R = 1, ECE", "R = 1, loss", "R = 9, ECE", "R = 9, loss",
    ]  # fmt: skip


def test_a_method_has_its_colour_of_all_pictures_beside_a_new_one(tmp_path):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("name: mine\n")
    with searching([tmp_path]):
        runs = [("", arm, run("r1")[2]) for arm in ("bam", "mine")]
        (axis,) = axes_of(LOSS, runs=runs, arms={"bam": "BAM", "mine": "mine"})
    looks = on_paper(["bam", "mine"])
    assert [line.get_color() for line in axis.lines] == [look["color"] for look in looks.values()]


@pytest.mark.slow
def test_conditions_are_columns_and_one_without_runs_is_left_out():
    runs = [run(arm, condition="wine") for arm in ("plain", "r1")]
    conditions = ("wine", "snow", "rain")
    axes = axes_of(LOSS, ERRORS, runs=runs, conditions=conditions)
    assert [axis.get_title() for axis in axes] == ["wine: loss", "wine: errors"]
    assert [len(axis.lines) for axis in axes] == [2, 4]
    runs += [run("r1", condition="snow")]
    axes = axes_of(LOSS, ERRORS, runs=runs, conditions=conditions)
    assert [axis.get_title() for axis in axes] == ["wine", "snow", "", ""]
    assert [axis.get_ylabel() for axis in axes] == ["loss", "", "errors", ""]
    assert [len(axis.lines) for axis in axes] == [2, 1, 4, 2]


def test_nan_stays_nan_in_a_mean():
    (axis,) = axes_of(LOSS, runs=[run("r1", 0, 2.0), run("r1", 1, math.nan)])
    assert axis.lines[0].get_ydata()[0] == 3
    assert math.isnan(axis.lines[0].get_ydata()[1])


def size(png):
    return struct.unpack(">II", png[16:24])


@pytest.mark.slow
def test_methods_are_columns_and_panels_rows():
    figure = drawn(BY_METHOD, GROUPED)
    assert [axis.get_title() for axis in figure.axes] == ["SGD", "DP-SGD", "", ""]
    assert [axis.get_ylabel() for axis in figure.axes] == ["risk", "", "gap", ""]
    assert [len(axis.lines) for axis in figure.axes] == [2, 2, 2, 2]
    assert [axis.get_legend() is None for axis in figure.axes] == [False, True] * 2
    one_panel = drawn(with_panels(BY_METHOD, BY_METHOD.file.panels[0]), GROUPED)
    assert size(image(one_panel))[1] < size(image(figure))[1]
    one_method = drawn(BY_METHOD, GROUPED[:2])
    assert [axis.get_title() for axis in one_method.axes] == ["SGD: risk", "SGD: gap"]


@pytest.mark.slow
def test_the_same_points_give_the_same_bytes():
    files = images(drawn(BY_METHOD, GROUPED))
    assert images(drawn(BY_METHOD, GROUPED)) == files
    starts = {suffix: content[:4] for suffix, content in files.items()}
    assert starts == {"png": b"\x89PNG", "svg": b"<?xm", "pdf": b"%PDF"}
    assert b"Software" not in files["png"], "another matplotlib would give other bytes"
    assert b"risk</text>" in files["svg"], "text of an SVG must stay text"
    assert b"Figure 2" not in files["svg"], "a paper has a caption"


@pytest.mark.long
def test_other_points_or_another_title_give_another_picture():
    plain = [grouped_run("sgd"), grouped_run("dpsgd")]
    changed = [grouped_run("sgd", **{"step/gap": [9.0, 2.0]}), grouped_run("dpsgd")]
    picture = image(drawn(BY_METHOD, plain))
    assert image(drawn(BY_METHOD, changed)) != picture
    assert image(drawn(replace(BY_METHOD, title="Other"), plain)) != picture
