import math

import pytest
from msgspec import structs

from dpbench.comparison.tables.figures.heat import draw_heat, heat_grids, heat_points
from dpbench.runs.config.table_file import Heat
from dpbench.runs.figures.formats import image
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

HEAT = Heat(
    x="optimizer.lr", y="method.bound", panels={"accuracy": "test/accuracy", "ECE": "test/ece"}
)


def run(lr, bound, accuracy, seed=0):
    choices = dict.fromkeys(("dataset", "model", "method"), "toy")
    config = {"choices": choices, "seed": seed, "optimizer": {"lr": lr}, "method": {"bound": bound}}
    metrics = {"test/accuracy": accuracy, "test/ece": 1 - accuracy}
    return Record(config, metrics, {}, {}, "complete")


RUNS = [run(0.1, 1, 0.5), run(0.1, 1, 0.7, seed=1), run(0.1, 9, 0.25), run(1, 1, math.nan)]


def points(runs=RUNS):
    return heat_points(runs, HEAT)


@pytest.mark.slow
def test_a_cell_is_the_mean_of_its_runs_in_percent():
    figure = draw_heat(points(), "Toy", HEAT)
    assert image(figure).startswith(b"\x89PNG\r\n")
    accuracy, ece = figure.axes
    assert [text.get_text() for text in accuracy.texts] == ["60.0", "NaN", "25.0", "NaN"]
    assert [text.get_text() for text in ece.texts] == ["40.0", "NaN", "75.0", "NaN"]
    assert [tick.get_text() for tick in accuracy.get_xticklabels()] == ["0.1", "1"]
    assert [tick.get_text() for tick in accuracy.get_yticklabels()] == ["1", "9"]


@pytest.mark.slow
def test_bright_is_better_for_every_metric():
    accuracy, ece = draw_heat(points(), "Toy", HEAT).axes
    assert accuracy.images[0].get_cmap().name == "viridis"
    assert ece.images[0].get_cmap().name == "viridis_r"
    for axis, best, worst in ((accuracy, "60.0", "25.0"), (ece, "40.0", "75.0")):
        colors = {text.get_text(): text.get_color() for text in axis.texts}
        assert (colors[best], colors[worst]) == ("black", "white")


def test_a_missing_metric_is_named_and_the_order_of_records_changes_nothing():
    assert points().equals(points(RUNS[::-1]))
    with pytest.raises(UserError, match="has no test/nll for the panel NLL"):
        heat_points(RUNS, structs.replace(HEAT, panels={"NLL": "test/nll"}))


def test_the_numbers_of_the_maps_are_tables_too():
    accuracy, ece = heat_grids(points(), HEAT)
    assert accuracy.heading == "accuracy (%)"
    assert accuracy.head == ("method.bound, and optimizer.lr", "0.1", "1")
    assert accuracy.rows == (("1", "60.0", "NaN"), ("9", "25.0", "NaN"))
    assert ece.rows[0] == ("1", "40.0", "NaN")
