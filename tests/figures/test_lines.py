import math
import struct

import pytest

from dpbench.errors import UserError
from dpbench.figures.bands import bands
from dpbench.figures.formats import image, images
from dpbench.figures.lines import FigureSpec, Panel, draw, points
from dpbench.records.record import Record

SPEC = FigureSpec(
    name="toy_fig1",
    title="Toy: risk (Figure 1)",
    x="step",
    x_scale="linear",
    panels=(
        Panel("risk", {"<group>": "step/R/<k>"}),
        Panel("gap", {"gap": "step/gap", "bound": "step/bound"}),
    ),
    methods=("sgd", "dpsgd"),
    groups={"two": 2, "eight": 8},
)


def record(method="sgd", seed=0, **changes):
    series = {
        "step": [0, 50],
        "step/R/2": [0.5 + seed, 0.25],
        "step/R/8": [1.5, math.nan],
        "step/gap": [1.0, 2.0],
        "step/bound": [-1.0, -2.0],
        "epoch": [0],
    }
    config = {"choices": {"method": method}, "seed": seed}
    return Record(config, {}, {}, {}, "complete", diagnostics=series | changes)


RECORDS = [record(method, seed) for method in ("sgd", "dpsgd") for seed in (0, 1)]


def test_every_line_of_every_panel_has_its_points():
    data = points(SPEC, RECORDS)
    assert list(data.columns) == ["panel", "method", "seed", "line", "x", "y"]
    assert len(data) == 4 * 4 * 2
    mine = data[(data["method"] == "dpsgd") & (data["seed"] == 1) & (data["x"] == 0)]
    assert dict(zip(zip(mine["panel"], mine["line"], strict=True), mine["y"], strict=True)) == {
        ("risk", "two"): 1.5,
        ("risk", "eight"): 1.5,
        ("gap", "gap"): 1.0,
        ("gap", "bound"): -1.0,
    }


@pytest.mark.slow
def test_over_a_setting_a_run_is_one_point_its_mean():
    spec = FigureSpec(**{**vars(SPEC), "x": "batch_size", "panels": SPEC.panels[1:]})
    small, large = record(seed=0), record(seed=1, **{"step/gap": [5.0, 6.0]})
    small.config["batch_size"], large.config["batch_size"] = 64, 256
    data = points(spec, [small, large])
    gaps = data[data["line"] == "gap"]
    assert list(zip(gaps["x"], gaps["y"], strict=True)) == [(64, 1.5), (256, 5.5)]
    log = FigureSpec(**{**vars(spec), "x_scale": "log"})
    drawn = [image(draw(each, bands(data, skip_nan=True))) for each in (log, spec)]
    assert drawn[0] != drawn[1]


def test_what_is_not_defined_stays_nan():
    data = points(SPEC, [record()])
    late = data[(data["line"] == "eight") & (data["x"] == 50)]
    assert late["y"].isna().tolist() == [True]


def test_the_order_of_the_records_changes_nothing():
    assert points(SPEC, RECORDS).equals(points(SPEC, RECORDS[::-1]))


def test_a_missing_series_is_named():
    lacking = record("dpsgd")
    del lacking.diagnostics["step/R/8"]
    with pytest.raises(UserError, match="toy_fig1 needs step/R/8, which the run of dpsgd lacks"):
        points(SPEC, [record(), lacking])


def test_a_run_without_diagnostics_is_named():
    bare = Record({"choices": {"method": "sgd"}, "seed": 0}, {}, {}, {}, "complete")
    with pytest.raises(UserError, match="which the run of sgd lacks"):
        points(SPEC, [bare])


def lines(spec, records):
    return bands(points(spec, records), skip_nan=True)


def size(png):
    return struct.unpack(">II", png[16:24])


@pytest.mark.slow
def test_the_picture_is_a_png_with_a_column_per_method_and_a_row_per_panel():
    picture = image(draw(SPEC, lines(SPEC, RECORDS)))
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    one_method = FigureSpec(**{**vars(SPEC), "methods": ("sgd",)})
    one_panel = FigureSpec(**{**vars(SPEC), "panels": SPEC.panels[:1]})
    assert size(image(draw(one_method, lines(one_method, RECORDS))))[0] < size(picture)[0]
    assert size(image(draw(one_panel, lines(one_panel, RECORDS))))[1] < size(picture)[1]


@pytest.mark.slow
def test_the_same_points_give_the_same_bytes():
    data = lines(SPEC, RECORDS)
    files = images(draw(SPEC, data))
    assert images(draw(SPEC, data)) == files
    starts = {suffix: content[:4] for suffix, content in files.items()}
    assert starts == {"png": b"\x89PNG", "svg": b"<?xm", "pdf": b"%PDF"}
    assert b"Software" not in files["png"], "another matplotlib would give other bytes"
    assert b"risk (Figure 1)" in files["svg"], "text of an SVG must stay text"


@pytest.mark.slow
def test_other_points_give_another_picture():
    changed = [record("sgd", **{"step/gap": [9.0, 2.0]}), record("dpsgd")]
    plain = [record("sgd"), record("dpsgd")]
    one, other = (image(draw(SPEC, lines(SPEC, records))) for records in (changed, plain))
    assert one != other


@pytest.mark.slow
def test_the_title_is_in_the_picture():
    data = lines(SPEC, RECORDS)
    changed = FigureSpec(**{**vars(SPEC), "title": f"{SPEC.title} (changed)"})
    assert image(draw(changed, data)) != image(draw(SPEC, data))
