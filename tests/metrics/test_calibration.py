import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.metrics.calibration import expected_calibration_error, maximum_calibration_error


def gaps_by_hand(outputs, targets, bins=15):
    """|accuracy - confidence| and share of examples, bin by bin, the last bin closed above."""
    exponentials = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    confidences = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == targets
    gaps, shares = [], []
    for number in range(bins):
        inside = (confidences >= number / bins) & (confidences < (number + 1) / bins)
        if number == bins - 1:
            inside |= confidences >= 1
        if inside.any():
            gaps.append(abs(right[inside].mean() - confidences[inside].mean()))
            shares.append(inside.mean())
    return np.array(gaps), np.array(shares)


@settings(deadline=None)
@given(
    n=st.integers(1, 60),
    classes=st.integers(2, 5),
    scale=st.sampled_from([0.1, 1, 5, 200]),
    seed=st.integers(0, 10_000),
)
def test_both_errors_agree_with_bins_made_by_hand(n, classes, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    outputs = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    targets = torch.randint(classes, (n,), generator=generator)
    gaps, shares = gaps_by_hand(outputs.numpy(), targets.numpy())
    expected, maximum = (gaps * shares).sum(), gaps.max()
    assert expected_calibration_error(outputs, targets) == pytest.approx(expected, abs=1e-6)
    assert maximum_calibration_error(outputs, targets) == pytest.approx(maximum, abs=1e-6)


def test_certain_examples_share_the_last_bin_with_nearly_certain_ones():
    outputs = torch.tensor([[800.0, 0.0], [4.0, 0.0]], dtype=torch.float64)
    nearly = 1 / (1 + math.exp(-4))
    error = expected_calibration_error(outputs, torch.tensor([0, 1]))
    assert error == pytest.approx(abs(0.5 - (1 + nearly) / 2))


def test_logits_between_0_and_1_are_not_taken_for_probabilities():
    outputs = torch.tensor([[0.9, 0.1]])
    confidence = 1 / (1 + math.exp(-0.8))
    assert expected_calibration_error(outputs, torch.tensor([0])) == pytest.approx(1 - confidence)


def test_nothing_and_nan_have_no_calibration():
    nothing = (torch.empty(0, 3), torch.empty(0, dtype=torch.int64))
    diverged = (torch.tensor([[math.nan, 0.0]]), torch.tensor([0]))
    for outputs, targets in (nothing, diverged):
        assert math.isnan(expected_calibration_error(outputs, targets))
        assert math.isnan(maximum_calibration_error(outputs, targets))
