import json
import math

import numpy as np
import pytest
import torch

from dpbench.learning.metrics.builtin.calibration import ece, mce
from dpbench.learning.metrics.calibration import effect_of_scaling
from dpbench.learning.metrics.reliability import CELLS, intervals, reliability


@pytest.fixture(scope="module")
def examples():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(90, 3, generator=generator)
    return logits, torch.randint(3, (90,), generator=generator)


@pytest.fixture(scope="module")
def kept(examples):
    return reliability(*examples)


def test_the_bins_give_the_calibration_errors_back(examples, kept):
    counts, confidences, accuracies = (
        np.array(kept["bins"][name]) for name in ("count", "confidence", "accuracy")
    )
    assert np.isnan(confidences[counts == 0]).all()
    gaps = np.abs(accuracies - confidences)
    expected = np.nansum(counts * gaps) / 90
    assert expected == pytest.approx(ece(*examples))
    assert np.nanmax(gaps) == pytest.approx(mce(*examples))


def test_a_histogram_counts_the_examples_of_each_cell(examples, kept):
    outputs, targets = examples
    probabilities = outputs.double().softmax(dim=1)
    seen = {"confidence": probabilities.max(dim=1).values, "true_class": probabilities}
    seen["true_class"] = probabilities[range(90), targets]
    for name, values in seen.items():
        by_hand = [0] * CELLS
        for value in values.tolist():
            by_hand[min(int(value * CELLS), CELLS - 1)] += 1
        assert kept["histogram"][name] == by_hand
        assert sum(by_hand) == 90


def test_intervals_and_temperature_are_those_of_their_modules(examples, kept):
    ends = {name: list(both) for name, both in intervals(*examples).items()}
    assert kept["interval"] == {"level": 0.95, **ends}
    note = kept["temperature"]["note"]
    assert kept["temperature"] == {**effect_of_scaling(*examples)._asdict(), "note": note}
    assert "no epsilon covers it" in note


def test_it_is_plain(kept):
    assert json.dumps(json.loads(json.dumps(kept))) == json.dumps(kept)


def test_nothing_and_nan_have_no_reliability():
    assert reliability(torch.empty(0, 3), torch.empty(0, dtype=torch.int64)) == {}
    assert reliability(torch.tensor([[math.nan, 0.0]]), torch.tensor([0])) == {}
