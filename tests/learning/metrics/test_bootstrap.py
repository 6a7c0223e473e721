import numpy as np
import pytest
import torch
from scipy import stats

from dpbench.learning.metrics import reliability
from dpbench.learning.metrics.builtin.calibration import ece
from dpbench.learning.metrics.calibration import BINS, brier, rank_by_confidence
from dpbench.learning.metrics.evaluation import evaluate
from dpbench.learning.metrics.reliability import _quantiles, intervals

NAMES = ("accuracy", "nll", "brier", "ece", "mce", "adaptive_ece")


def made(n, seed=0):
    """Logits twice as large as those that the classes were drawn from."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    targets = torch.multinomial(logits.softmax(dim=1), 1, generator=generator).squeeze(1)
    return 2 * logits, targets


def measured(outputs, targets):
    zeros = torch.zeros_like(targets)
    metrics = evaluate("classification", outputs, zeros.float(), targets, zeros, ["all"])
    return {name: metrics[name] for name in NAMES}


def test_one_resample_is_measured_as_any_other_examples(monkeypatch):
    """Both ends are then twice the estimate less what the resample has."""
    monkeypatch.setattr(reliability, "RESAMPLES", 1)
    outputs, targets = made(50)
    by_confidence = outputs.softmax(dim=1).max(dim=1).values.argsort()
    places = by_confidence[np.random.default_rng(0).integers(50, size=50)]
    whole, drawn = measured(outputs, targets), measured(outputs[places], targets[places])
    for name, (low, high) in intervals(outputs, targets).items():
        largest = {"nll": np.inf, "brier": 2}.get(name, 1)
        end = min(max(2 * whole[name] - drawn[name], 0), largest)
        assert (low, high) == pytest.approx((end, end)), name


def theirs(statistic, *data):
    found = stats.bootstrap(
        data, statistic, paired=True, vectorized=False, method="basic", n_resamples=1000,
        rng=np.random.default_rng(1),
    )  # fmt: skip
    return found.confidence_interval


@pytest.mark.slow
def test_scipy_has_the_same_intervals_up_to_its_own_draws():
    outputs, targets = made(300)
    ours = intervals(outputs, targets)

    def of_columns(*columns):
        *logits, classes = (torch.from_numpy(np.asarray(column)) for column in columns)
        return ece(torch.stack(logits, 1), classes.long())

    reference = {
        "accuracy": theirs(np.mean, rank_by_confidence(outputs, targets).correct),
        "brier": theirs(np.mean, brier(outputs, targets).numpy()),
        "ece": theirs(of_columns, *outputs.T.numpy(), targets.numpy()),
    }
    for name, interval in reference.items():
        width = interval.high - interval.low
        assert ours[name] == pytest.approx(tuple(interval), abs=0.12 * width), name


def test_ends_stay_within_the_metric_whatever_the_order_of_examples():
    outputs, targets = made(80)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    shuffled = intervals(outputs[order], targets[order])
    for name, ends in intervals(outputs, targets).items():
        assert shuffled[name] == pytest.approx(ends), name
    outputs = torch.tensor([[9.0, 0.0]]).repeat(20, 1)
    targets = torch.tensor([1] + [0] * 19)
    for name, (low, high) in intervals(outputs, targets).items():
        assert 0 <= low <= high <= (2 if name in ("brier", "nll") else 1)
    assert intervals(outputs, targets)["accuracy"][1] == 1


@pytest.mark.long
def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """Of an overconfident model; percentile intervals of the ECE hold it in 2 of 3 cases."""
    outputs, targets = made(200_000)
    truth = measured(outputs, targets)
    draw, held = np.random.default_rng(3), dict.fromkeys(NAMES, 0)
    for _ in range(100):
        places = torch.from_numpy(draw.integers(len(targets), size=500))
        for name, (low, high) in intervals(outputs[places], targets[places]).items():
            held[name] += low <= truth[name] <= high
    for name in ("accuracy", "nll", "brier", "ece", "adaptive_ece"):
        assert 85 <= held[name] <= 100, held


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 7, 300])
def test_how_many_resamples_are_measured_at_once_changes_no_bit(n, monkeypatch):
    outputs, targets = made(n)
    together = intervals(outputs, targets)
    for at_once in (1, 7 * n):  # the last of which does not divide the number of resamples
        monkeypatch.setattr(reliability, "AT_ONCE", at_once)
        assert intervals(outputs, targets) == together


@pytest.mark.parametrize("n", [1, 2, 15, 100, 1001])
def test_quantiles_of_ranked_examples_are_those_of_numpy_to_the_bit(n):
    ranked = np.sort(np.random.default_rng(n).random((7, n)).round(2))
    shares = np.arange(1, BINS) / BINS
    assert np.array_equal(_quantiles(ranked, shares), np.quantile(ranked, shares, axis=1).T)
