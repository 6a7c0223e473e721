"""How far the metrics of one model would move with other test examples."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from dpbench.metrics import calibration, classification
from dpbench.metrics.calibration import Ranked, equal_mass, equal_width, expected, maximum

LEVEL = 0.95
RESAMPLES = 1000
LARGEST = {"nll": np.inf, "brier": 2.0}
"""What a metric can be at most, where it is not 1; none can be below 0."""


def intervals(outputs: Tensor, targets: Tensor) -> dict[str, tuple[float, float]]:
    """95% basic bootstrap intervals of 1,000 resamples, 2 estimate - quantile at both ends.

    outputs: finite logits [n, K]; targets: classes [n] int64; n at least 1. Keys: `accuracy`,
    `nll`, `brier`, `ece`, `mce`, `adaptive_ece`. The resamples are the same for the same n. They
    hold for the trained model: what another seed's training would change is not in them.

    Chance gives every bin a gap, so calibration errors come out too large, and those of resamples
    larger still. The basic interval takes that off again, where the percentile interval adds it
    twice; so it may lie below the estimate. Source: Davison and Hinkley 1997, section 5.2. It still
    covers too seldom where a model is nearly calibrated, and for the maximum error.
    """
    losses = {
        "nll": classification.negative_log_likelihood(outputs, targets).numpy(),
        "brier": calibration.brier(outputs, targets).numpy(),
    }
    by_confidence = calibration.probabilities(outputs).max(dim=1).values.argsort(stable=True)
    values = {name: loss[by_confidence.numpy()] for name, loss in losses.items()}
    examples = calibration.ranked(outputs[by_confidence], targets[by_confidence])
    draw = np.random.default_rng(0)
    whole = _measure(np.arange(len(targets)), examples, values)
    seen = [_measure(_resampled(draw, len(targets)), examples, values) for _ in range(RESAMPLES)]
    return {name: _basic(whole[name], [one[name] for one in seen], name) for name in whole}


def _basic(estimate: float, resampled: list[float], name: str) -> tuple[float, float]:
    high, low = 2 * estimate - np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    largest = LARGEST.get(name, 1.0)
    return float(np.clip(low, 0, largest)), float(np.clip(high, 0, largest))


def _resampled(draw: np.random.Generator, n: int) -> np.ndarray:
    """Places [n] drawn with replacement, in order, so that ranked examples stay ranked."""
    return np.repeat(np.arange(n), np.bincount(draw.integers(n, size=n), minlength=n))


def _measure(
    places: np.ndarray, examples: Ranked, values: Mapping[str, np.ndarray]
) -> dict[str, float]:
    drawn = Ranked(*(numbers[places] for numbers in examples))
    bins = equal_width(drawn)
    return {
        "accuracy": float(drawn.right.mean()),
        **{name: float(numbers[places].mean()) for name, numbers in values.items()},
        "ece": expected(bins),
        "mce": maximum(bins),
        "adaptive_ece": expected(equal_mass(drawn)),
    }
