import math

import numpy as np
import pytest
import torch

from dpbench.learning.metrics.builtin.calibration import ece
from dpbench.learning.metrics.reliability import CELLS, reliability
from dpbench.runs.figures.formats import image
from dpbench.runs.figures.reliability import (
    HISTOGRAMS,
    draw_histograms,
    draw_reliability,
    histogram_points,
    reliability_picture,
    reliability_points,
)
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

PNG = b"\x89PNG\r\n"


def outputs_of(seed, n=200):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 3, generator=generator)
    return logits, torch.randint(3, (n,), generator=generator)


def record_of(seed, kept=None):
    kept = reliability(*outputs_of(seed)) if kept is None else kept
    choices = {"dataset": "digits", "model": "mlp", "method": "dpsgd"}
    config = {"seed": seed, "choices": choices, "method": {}}
    return Record(config, {}, {}, {}, "complete", calibration=kept)


@pytest.fixture(scope="module")
def runs():
    return {"small R": [record_of(0), record_of(1)], "large R": [record_of(2)]}


def test_points_are_the_bins_of_every_run(runs):
    points = reliability_points(runs)
    assert len(points) == 3 * 15
    mine = points[(points["label"] == "small R") & (points["seed"] == 1)]
    kept = runs["small R"][1].calibration["bins"]
    assert mine["count"].tolist() == kept["count"]
    assert np.array_equal(mine["accuracy"], kept["accuracy"], equal_nan=True)
    assert mine["low"].iloc[0] == 0
    assert mine["high"].iloc[-1] == 1


@pytest.mark.parametrize("what", HISTOGRAMS)
def test_points_are_the_cells_of_every_histogram(runs, what):
    points = histogram_points(runs, what)
    assert len(points) == 3 * CELLS
    assert points.groupby(["label", "seed"])["count"].sum().tolist() == [200] * 3


def written(figure):
    """The picture, and all that is drawn on its axes."""
    return image(figure), figure.axes


@pytest.mark.slow
def test_a_diagram_shows_the_bins_of_all_runs_of_a_label_together(runs):
    picture, axes = written(draw_reliability(reliability_points(runs), "Reliability"))
    assert picture.startswith(PNG)
    both = (torch.cat(parts) for parts in zip(outputs_of(0), outputs_of(1), strict=True))
    assert axes[0].texts[0].get_text() == f"ECE {100 * ece(*both):.1f}%"
    accuracies, gaps = ([bar.get_height() for bar in b] for b in axes[0].containers if len(b) == 15)
    kept = [run.calibration["bins"] for run in runs["small R"]]
    right = np.nansum([np.multiply(k["count"], k["accuracy"]) for k in kept], axis=0)
    count = np.sum([k["count"] for k in kept], axis=0)
    assert np.nan_to_num(accuracies) == pytest.approx(right / count.clip(min=1))
    assert [a + g for a, g in zip(accuracies, gaps, strict=True) if not math.isnan(a)][-1] > 0.9
    assert sum([bar.get_height() for bar in axes[2].patches]) == pytest.approx(1)


def test_a_histogram_shows_shares_and_a_run_without_calibration_is_named(runs):
    data = histogram_points(runs, "confidence")
    picture, axes = written(
        draw_histograms(data.assign(panel="dpsgd"), "Confidence", "confidence", ["dpsgd"])
    )
    assert picture.startswith(PNG)
    values = [patch.get_data().values.sum() for patch in axes[0].patches]
    assert values == pytest.approx([1, 1])
    with pytest.raises(UserError, match="of small R has no calibration"):
        reliability_points({"small R": [record_of(0, kept={})]})


@pytest.mark.slow
def test_the_same_numbers_give_the_same_bytes(runs):
    data = reliability_points(runs)
    one, other = (image(draw_reliability(data, "Reliability")) for _ in range(2))
    assert one == other


@pytest.mark.slow
@pytest.mark.parametrize("label", ["日本", "a$b$c", "$\\frac$", "x" * 99])
def test_a_label_is_text_whatever_it_contains(label):
    assert reliability_picture(reliability_points({label: [record_of(0)]}), label).startswith(PNG)
