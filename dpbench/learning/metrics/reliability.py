"""The data of calibration figures, as stored in a record."""

import math

import numpy as np
from torch import Tensor

from dpbench.learning.metrics import bootstrap
from dpbench.learning.metrics.calibration import (
    CAVEAT,
    effect_of_scaling,
    equal_width,
    probability_of_truth,
    rank_by_confidence,
)
from dpbench.learning.metrics.students_t import CONFIDENCE

CELLS = 50
"""Cells of the histograms, each 0.02 wide; the last one is closed."""


def reliability(outputs: Tensor, targets: Tensor) -> dict:
    """Counts, intervals and temperature of one model on one split, as plain lists and numbers.

    outputs: logits [n, K]; targets: classes [n] int64. Empty without examples or if an output is
    not finite; otherwise

    - `bins`: `count`, mean `confidence` and `accuracy` of 15 bins of equal width, NaN where a bin
      is empty (the reliability diagram of DeGroot and Fienberg 1983);
    - `histogram`: examples by `confidence` and by the probability of the `true_class`, in 50 cells
      of equal width;
    - `interval`: `level` and, by metric, low and high (`dpbench.metrics.bootstrap`);
    - `temperature`: the effect of scaling (`effect_of_scaling`), and a `note` on privacy.
    """
    outputs, targets = outputs.detach().cpu(), targets.cpu()
    examples = rank_by_confidence(outputs, targets)
    if not len(examples.correct):
        return {}
    bins = equal_width(examples)
    truth = probability_of_truth(outputs, targets).numpy()
    intervals = bootstrap.intervals(outputs, targets)
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
        "interval": {"level": CONFIDENCE, **{name: list(ends) for name, ends in intervals.items()}},
        "temperature": {
            **effect_of_scaling(outputs, targets)._asdict(),
            "note": CAVEAT,
        },
    }


def _means(sums: np.ndarray, counts: np.ndarray) -> list[float]:
    pairs = zip(sums.tolist(), counts.tolist(), strict=True)
    return [total / count if count else math.nan for total, count in pairs]


def _histogram(probabilities: np.ndarray) -> list[int]:
    return np.histogram(probabilities, CELLS, (0.0, 1.0))[0].tolist()
