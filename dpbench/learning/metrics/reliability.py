"""What a record keeps of the calibration of a model: counts, intervals and a temperature. The
bootstrap intervals say how much the metrics of one model vary with the test examples."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
from torch import Tensor

from dpbench.learning.metrics import calibration, classification
from dpbench.learning.metrics.calibration import (
    BINS,
    CAVEAT,
    Bins,
    RankedExamples,
    bins_between,
    effect_of_scaling,
    equal_width,
    probability_of_truth,
    rank_by_confidence,
)
from dpbench.learning.metrics.students_t import CONFIDENCE

CELLS = 50
"""Cells of the histograms, each 0.02 wide; the last one is closed."""

RESAMPLES = 1000
LARGEST = {"nll": np.inf, "brier": 2.0}
"""The largest value of a metric, where it is not 1; the smallest is always 0."""

AT_ONCE = 2**15
"""Examples in the resamples that are measured together: more would not fit in the cache."""


def reliability(outputs: Tensor, targets: Tensor) -> dict:
    """Counts, intervals and temperature of one model on one split, as plain lists and numbers.

    outputs: logits [n, K]; targets: classes [n] int64. Empty without examples or if an output is
    not finite; otherwise

    - `bins`: `count`, mean `confidence` and `accuracy` of 15 bins of equal width, NaN where a bin
      is empty (the reliability diagram of DeGroot and Fienberg 1983);
    - `histogram`: examples by `confidence` and by the probability of the `true_class`, in 50 cells
      of equal width;
    - `interval`: `level` and, by metric, low and high (`intervals`);
    - `temperature`: the effect of scaling (`effect_of_scaling`), and a `note` on privacy.
    """
    outputs, targets = outputs.detach().cpu(), targets.cpu()
    examples = rank_by_confidence(outputs, targets)
    if not len(examples.correct):
        return {}
    bins = equal_width(examples)
    truth = probability_of_truth(outputs, targets).numpy()
    by_metric = intervals(outputs, targets)
    return {
        "bins": {
            "count": bins.counts.tolist(),
            "confidence": _means(bins.confidences, bins.counts),
            "accuracy": _means(bins.correct, bins.counts),
        },
        "histogram": {
            "confidence": _histogram(examples.confidences),
            "true_class": _histogram(truth),
        },
        "interval": {"level": CONFIDENCE, **{name: list(ends) for name, ends in by_metric.items()}},
        "temperature": {**effect_of_scaling(outputs, targets)._asdict(), "note": CAVEAT},
    }


def _means(sums: np.ndarray, counts: np.ndarray) -> list[float]:
    pairs = zip(sums.tolist(), counts.tolist(), strict=True)
    return [total / count if count else math.nan for total, count in pairs]


def _histogram(probabilities: np.ndarray) -> list[int]:
    return np.histogram(probabilities, CELLS, (0.0, 1.0))[0].tolist()


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
    examples = calibration.rank_by_confidence(outputs[by_confidence], targets[by_confidence])
    n = len(targets)
    estimates = _measure(np.arange(n)[None], examples, values)
    resampled = [_measure(indices, examples, values) for indices in _resamples(n)]
    return {
        name: _basic_interval(
            float(estimate[0]), np.concatenate([metrics[name] for metrics in resampled]), name
        )
        for name, estimate in estimates.items()
    }


def _basic_interval(estimate: float, resampled: np.ndarray, name: str) -> tuple[float, float]:
    high, low = 2 * estimate - np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    largest = LARGEST.get(name, 1.0)
    return float(np.clip(low, 0, largest)), float(np.clip(high, 0, largest))


def _resamples(n: int) -> Iterator[np.ndarray]:
    """Indices [rows, n] drawn with replacement, sorted, so that ranked examples stay ranked."""
    draw, most = np.random.default_rng(0), max(1, AT_ONCE // n)
    for start in range(0, RESAMPLES, most):
        rows = min(most, RESAMPLES - start)
        cells = draw.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        times = np.bincount(cells.ravel(), minlength=rows * n)
        yield np.repeat(np.tile(np.arange(n), rows), times).reshape(rows, n)


def _measure(
    indices: np.ndarray, examples: RankedExamples, values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The metrics [rows] of the examples at indices [rows, n]."""
    drawn = RankedExamples(*(numbers[indices] for numbers in examples))
    shares = np.arange(1, BINS) / BINS
    quantiles = _quantiles(drawn.confidences, shares)
    bins = _binned(drawn, np.stack([np.broadcast_to(shares, quantiles.shape), quantiles], axis=1))
    gaps, counts = np.abs(bins.gaps), bins.counts[:, 0]
    equal_width, equal_mass = gaps[:, 0], gaps[:, 1]
    return {
        "accuracy": drawn.correct.mean(axis=1),
        **{name: numbers[indices].mean(axis=1) for name, numbers in values.items()},
        "ece": equal_width.sum(axis=1) / indices.shape[1],
        "mce": (equal_width / np.maximum(counts, 1)).max(axis=1),
        "adaptive_ece": equal_mass.sum(axis=1) / indices.shape[1],
    }


def _quantiles(ranked: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The quantiles [rows, shares] of sorted rows [rows, n], equal to np.quantile's to the bit."""
    positions = shares * (ranked.shape[1] - 1)
    below = np.floor(positions).astype(int)
    low, high = ranked[:, below], ranked[:, np.minimum(below + 1, ranked.shape[1] - 1)]
    rest = positions - below
    return np.where(rest < 0.5, low + (high - low) * rest, high - (high - low) * (1 - rest))


def _binned(drawn: RankedExamples, edges: np.ndarray) -> Bins:
    """The bins of each row, which begin at its edges [rows, kinds, bins - 1]."""
    pairs = zip(drawn.confidences, edges, strict=True)
    inner = np.array([np.searchsorted(confidences, row) for confidences, row in pairs])
    ends = ((0, 0), (0, 0), (0, drawn.confidences.shape[1]))
    starts = np.pad(inner, ((0, 0), (0, 0), (1, 1)), constant_values=ends)
    return bins_between(RankedExamples(*(numbers[:, None] for numbers in drawn)), starts)
