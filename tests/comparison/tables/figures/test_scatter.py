import math
from dataclasses import replace

import pandas as pd
import pytest

from dpbench.comparison.tables.figures.panels import FigureSpec
from dpbench.comparison.tables.figures.scatter import draw_scatter, scatter_grid, scatter_points
from dpbench.runs.config.table_file import Scatter
from dpbench.runs.figures.formats import image
from dpbench.runs.records.record import Record

SPEC = FigureSpec(
    name="toy_fig1",
    title="Toy",
    file=Scatter(x="test/accuracy", y="test/worst_group_accuracy"),
    arms={"plain": "SGD", "a": "A", "b": "B", "c": "C"},
    conditions=("wine", "toys"),
    baseline="plain",
)


def run(arm, a, b, condition="wine", status="complete"):
    metrics = {"test/accuracy": (a + b) / 2, "test/accuracy/a": a, "test/accuracy/b": b}
    return condition, arm, Record({"seed": 0}, metrics, {}, {}, status)


RUNS = [
    *(run("plain", 1.0, 0.9), run("a", 0.9, 0.5), run("a", 0.7, 0.9), run("b", 0.7, 0.72)),
    *(run("c", 0.6, 0.6), run("c", 0.6, 0.62, "toys")),
]
TRIALS = pd.DataFrame(
    [("wine", "a", 0.7, 0.5 + i / 100) for i in range(19)] + [("wine", "a", 0.1, 0.0)],
    columns=["condition", "arm", "x", "y"],
)


def points(runs=RUNS, trials=TRIALS, spec=SPEC):
    return scatter_points(spec, runs, trials)


def front(data):
    return [*zip(data["condition"][data["front"]], data["arm"][data["front"]], strict=True)]


def test_a_mean_has_the_worst_group_of_each_run_and_the_deviation_over_runs():
    data = points()
    a = data[(data["kind"] == "runs") & (data["arm"] == "a")].iloc[0]
    # The worst groups of the two runs are 0.5 and 0.7, though both of these means are 0.7 and more.
    assert (a.x, a.y, a.n) == (pytest.approx(0.75), pytest.approx(0.6), 2)
    assert a.y_deviation == pytest.approx(0.2 / math.sqrt(2))
    assert (data["kind"] == "trial").sum() == len(TRIALS)


def test_the_front_has_every_mean_that_none_beats_whatever_the_order():
    # a is more accurate, b has the better worst group, c is below both, and plain is not private.
    assert front(points()) == [("wine", "a"), ("wine", "b"), ("toys", "c")]
    runs = [run("a", 0.8, 0.8), run("b", 0.8, 0.8), run("c", 0.9, 0.9, status="diverged")]
    assert front(points(runs)) == [("wine", "a"), ("wine", "b")]
    # The accuracies of a and b are equal, though (0.1 + 0.2) + 0.3 > 0.1 + (0.2 + 0.3).
    values = (0.3, 0.2, 0.1), (0.1, 0.2, 0.3)
    runs = [
        *(run("a", value, value) for value in values[0]),
        *(run("b", value + 0.01, value - 0.01) for value in values[1]),
    ]
    assert front(points(runs)) == [("wine", "a")]


def test_the_direction_of_a_metric_is_that_of_the_registry():
    file = Scatter(x="test/ece", y="test/accuracy")
    spec = replace(SPEC, file=file, conditions=("wine",))
    runs = []
    for arm, ece, accuracy in (("a", 0.1, 0.8), ("b", 0.2, 0.9), ("c", 0.3, 0.8)):
        metrics = {"test/ece": ece, "test/accuracy": accuracy}
        runs.append(("wine", arm, Record({"seed": 0}, metrics, {}, {}, "complete")))
    assert front(points(runs, TRIALS.iloc[:0], spec)) == [("wine", "a"), ("wine", "b")]


@pytest.mark.slow
def test_a_panel_has_every_arm_in_the_colour_that_it_has_everywhere():
    figure = draw_scatter(SPEC, points())
    assert image(figure).startswith(b"\x89PNG\r\n")
    wine, toys = figure.axes
    assert [axis.get_title() for axis in figure.axes] == ["wine", "toys"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["Pareto front", *SPEC.arms.values()]
    (only,) = toys.containers
    assert only.lines[0].get_color() == wine.containers[3].lines[0].get_color()


def test_a_panel_leaves_the_worst_trials_out_and_says_how_many():
    wine = draw_scatter(SPEC, points()).axes[0]
    assert wine.get_xlim()[0] > 0.1 * 100
    assert wine.get_ylim()[0] < 50.0
    assert [text.get_text() for text in wine.texts] == ["1 of 20 trials lie outside"]


def test_the_grid_has_every_mean_in_percent_and_the_number_of_trials():
    grid = scatter_grid(SPEC, points())
    assert grid.head[2:4] == ("accuracy (%)", "accuracy of the worst group (%)")
    assert grid.rows[1] == ("wine", "A", "75.0 ± 7.1", "60.0 ± 14.1", "2", "20", "yes")
    assert grid.rows[0] == ("wine", "SGD", "95.0", "90.0", "1", "0", "")
