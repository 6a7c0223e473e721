"""Bootstrap intervals: how much the metrics of one model vary with the test examples."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from dpbench.metrics import calibration, classification
from dpbench.metrics.calibration import RankedExamples, equal_mass, equal_width, expected, maximum

LEVEL = 0.95
RESAMPLES = 1000
LARGEST = {"nll": np.inf, "brier": 2.0}
"""The largest value of a metric, where it is not 1; the smallest is always 0."""


def intervals(outputs: Tensor, targets: Tensor) -> dict[str, tuple[float, float]]:
    """95% basic bootstrap intervals of 1,000 resamples, 2 estimate - quantile at both ends.

    outputs: finite logits [n, K]; targets: classes [n] int64; n at least 1. Keys: `accuracy`,
    `nll`, `brier`, `ece`, `mce`, `adaptive_ece`. The resamples depend on n alone. The intervals are
    for the trained model: they do not include variation over training seeds.

    Sampling noise gives every bin a gap, so calibration errors are biased upwards, and those of
    resamples more so. The basic interval subtracts that bias, where the percentile interval adds it
    again; so it may lie below the estimate. Source: Davison and Hinkley 1997, section 5.2. Coverage
    is still too low where a model is nearly calibrated, and for the maximum error.
    """
    losses = {
        "nll": classification.negative_log_likelihood(outputs, targets).numpy(),
        "brier": calibration.brier(outputs, targets).numpy(),
    }
    by_confidence = calibration.probabilities(outputs).max(dim=1).values.argsort(stable=True)
    values = {name: loss[by_confidence.numpy()] for name, loss in losses.items()}
    examples = calibration.ranked(outputs[by_confidence], targets[by_confidence])
    draw = np.random.default_rng(0)
    estimates = _measure(np.arange(len(targets)), examples, values)
    resampled = [
        _measure(_resample(draw, len(targets)), examples, values) for _ in range(RESAMPLES)
    ]
    return {
        name: _basic_interval(estimate, [metrics[name] for metrics in resampled], name)
        for name, estimate in estimates.items()
    }


def _basic_interval(estimate: float, resampled: list[float], name: str) -> tuple[float, float]:
    high, low = 2 * estimate - np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    largest = LARGEST.get(name, 1.0)
    return float(np.clip(low, 0, largest)), float(np.clip(high, 0, largest))


def _resample(draw: np.random.Generator, n: int) -> np.ndarray:
    """Indices [n] drawn with replacement, sorted, so that ranked examples stay ranked."""
    return np.repeat(np.arange(n), np.bincount(draw.integers(n, size=n), minlength=n))


def _measure(
    indices: np.ndarray, examples: RankedExamples, values: Mapping[str, np.ndarray]
) -> dict[str, float]:
    drawn = RankedExamples(*(numbers[indices] for numbers in examples))
    bins = equal_width(drawn)
    return {
        "accuracy": float(drawn.correct.mean()),
        **{name: float(numbers[indices].mean()) for name, numbers in values.items()},
        "ece": expected(bins),
        "mce": maximum(bins),
        "adaptive_ece": expected(equal_mass(drawn)),
    }
