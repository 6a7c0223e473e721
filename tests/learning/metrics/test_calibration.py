import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.learning.metrics.builtin.calibration import adaptive_ece, ece, mce
from dpbench.learning.metrics.calibration import (
    BINS,
    brier,
    equal_mass,
    equal_width,
    probability_of_truth,
    rank_by_confidence,
)


def made(n, classes=3, scale=2.0, seed=0):
    """Logits and classes, overconfident by a factor of two."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    targets = torch.multinomial((logits / 2).softmax(dim=1), 1, generator=generator).squeeze(1)
    return logits, targets


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
    assert ece(outputs, targets) == pytest.approx(expected, abs=1e-6)
    assert mce(outputs, targets) == pytest.approx(maximum, abs=1e-6)


def test_bins_of_few_examples_can_be_left_out():
    logits, targets = made(300)
    gaps, shares = gaps_by_hand(logits.numpy(), targets.numpy())
    enough = [gap for gap, share in zip(gaps, shares, strict=True) if share * 300 >= 20]
    assert 0 < len(enough) < len(gaps)
    least_20 = mce(logits, targets, least=20)
    assert least_20 == pytest.approx(max(enough))
    assert least_20 < mce(logits, targets)
    assert math.isnan(mce(logits[:19], targets[:19], least=20))


def test_certain_examples_share_the_last_bin_and_an_edge_opens_the_upper_one():
    outputs = torch.tensor([[800.0, 0.0], [4.0, 0.0]], dtype=torch.float64)
    nearly = 1 / (1 + math.exp(-4))
    assert ece(outputs, torch.tensor([0, 1])) == pytest.approx(abs(0.5 - (1 + nearly) / 2))
    examples = rank_by_confidence(torch.zeros(3, 2), torch.tensor([0, 1, 0]))
    assert equal_width(examples, bins=4).counts.tolist() == [0, 0, 3, 0]


def test_probabilities_are_of_the_truth_and_not_logits_between_0_and_1():
    outputs = torch.tensor([[0.9, 0.1]])
    confidence = 1 / (1 + math.exp(-0.8))
    assert ece(outputs, torch.tensor([0])) == pytest.approx(1 - confidence)
    outputs, targets = made(30)
    likelihood = torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
    assert torch.allclose(-probability_of_truth(outputs, targets).log(), likelihood)


def test_nothing_and_nan_have_no_calibration():
    nothing = (torch.empty(0, 3), torch.empty(0, dtype=torch.int64))
    diverged = (torch.tensor([[math.nan, 0.0]]), torch.tensor([0]))
    for outputs, targets in (nothing, diverged):
        assert math.isnan(ece(outputs, targets))
        assert math.isnan(mce(outputs, targets))
        assert math.isnan(adaptive_ece(outputs, targets))
    assert brier(*diverged).isnan().all()


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 5])
def test_both_errors_agree_with_torchmetrics(classes):
    from torchmetrics.functional.classification import multiclass_calibration_error as theirs

    outputs, targets = made(400, classes)
    probabilities = outputs.softmax(dim=1).float()
    for ours, norm in ((ece, "l1"), (mce, "max")):
        reference = theirs(probabilities, targets, classes, n_bins=BINS, norm=norm)
        assert ours(outputs, targets) == pytest.approx(reference.item(), abs=1e-6)


# With n - 1 coprime to 15, no quantile is a confidence, so it does not matter whose bin it opens.
@pytest.mark.parametrize(("make", "strategy"), [(equal_width, "uniform"), (equal_mass, "quantile")])
@pytest.mark.parametrize("n", [17, 62, 407])
def test_bins_agree_with_scikit_learn(make, strategy, n):
    from sklearn.calibration import calibration_curve

    examples = rank_by_confidence(*made(n))
    bins = make(examples)
    filled = bins.counts > 0
    accuracy, confidence = calibration_curve(
        examples.correct, examples.confidences, n_bins=BINS, strategy=strategy
    )
    assert bins.correct[filled] / bins.counts[filled] == pytest.approx(accuracy)
    assert bins.confidences[filled] / bins.counts[filled] == pytest.approx(confidence)
    assert bins.counts.sum() == n


@settings(deadline=None)
@given(share=st.integers(1, 6), seed=st.integers(0, 1000))
def test_adaptive_bins_are_equal_parts_of_the_sorted_examples(share, seed):
    n = BINS * share
    outputs, targets = made(n, seed=seed)
    confidences, classes = outputs.softmax(dim=1).max(dim=1)
    order = confidences.argsort()
    gaps = ((classes == targets).double() - confidences)[order].view(BINS, share).mean(dim=1)
    assert adaptive_ece(outputs, targets) == pytest.approx(gaps.abs().mean().item())


def test_equal_confidences_share_an_adaptive_bin_whatever_their_order():
    outputs = torch.tensor([[2.0, 0.0], [1.0, 0.0]]).repeat(50, 1)
    targets = torch.tensor([0, 0, 1, 1]).repeat(25)
    assert sorted(equal_mass(rank_by_confidence(outputs, targets)).counts)[-2:] == [50, 50]
    error = adaptive_ece(outputs, targets)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    assert adaptive_ece(outputs[order], targets[order]) == pytest.approx(error)
    assert error == pytest.approx((torch.tensor([1.0, 2.0]).sigmoid() - 0.5).mean().item())


def test_the_brier_score_agrees_with_scikit_learn_from_0_to_2():
    from sklearn.metrics import brier_score_loss

    outputs, targets = made(80, 4)
    reference = brier_score_loss(
        targets, outputs.softmax(dim=1).numpy(), labels=range(4), scale_by_half=False
    )
    assert brier(outputs, targets).mean().item() == pytest.approx(reference)
    outputs = torch.tensor([[900.0, 0.0], [900.0, 0.0]])
    assert brier(outputs, torch.tensor([0, 1])).tolist() == [0, 2]
