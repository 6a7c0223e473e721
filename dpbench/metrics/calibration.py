"""How far a model's confidence is from its accuracy."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

BINS = 15


class Ranked(NamedTuple):
    """Examples in the order of their confidence: both float64 [n], confidences in [0, 1]."""

    confidences: np.ndarray
    right: np.ndarray  # 1 where the class of largest probability is the true one


class Bins(NamedTuple):
    """What the examples of each bin add up to: all [bins]."""

    counts: np.ndarray  # int64
    confidences: np.ndarray
    right: np.ndarray

    @property
    def gaps(self) -> np.ndarray:
        """Examples times (accuracy - mean confidence); 0 in a bin without examples."""
        return self.right - self.confidences


def expected_calibration_error(outputs: Tensor, targets: Tensor) -> float:
    """Mean over examples of |accuracy - mean confidence| of the example's bin, in [0, 1].

    outputs: logits [n, K]; targets: classes [n] int64. The confidence is the largest softmax
    probability; 15 bins of equal width, the l1 norm, bins weighted by their examples (Guo et al.
    2017, eq. 3). NaN without examples or where an output is not finite.
    """
    return expected(equal_width(ranked(outputs, targets)))


def maximum_calibration_error(outputs: Tensor, targets: Tensor, least: int = 1) -> float:
    """The largest |accuracy - mean confidence| of any bin of at least so many examples, in [0, 1].

    The same bins as the expected error (Guo et al. 2017, eq. 4). It is not weighted, so with
    `least` 1, as the formula has it, a bin of one example can decide it. NaN where no bin has so
    many examples or an output is not finite.
    """
    return maximum(equal_width(ranked(outputs, targets)), least)


def adaptive_calibration_error(outputs: Tensor, targets: Tensor) -> float:
    """The expected error over 15 bins of equal mass, between quantiles of the confidence.

    Equal confidences share a bin, so with many ties there are fewer bins (Nguyen and O'Connor 2015,
    "Posterior calibration and exploratory analysis for natural language processing models").
    """
    return expected(equal_mass(ranked(outputs, targets)))


def ranked(outputs: Tensor, targets: Tensor) -> Ranked:
    """The examples by confidence, from logits [n, K] and classes [n]; none if one is not finite."""
    if not outputs.isfinite().all():
        return Ranked(np.empty(0), np.empty(0))
    confidences, classes = probabilities(outputs).max(dim=1)
    confidences, order = confidences.sort(stable=True)
    return Ranked(confidences.numpy(), (classes == targets.cpu())[order].double().numpy())


def probabilities(outputs: Tensor) -> Tensor:
    """Softmax of logits [n, K], as float64 on the CPU."""
    return outputs.detach().cpu().double().softmax(dim=1)


def equal_width(examples: Ranked, bins: int = BINS) -> Bins:
    """Bins [0, 1/bins), ..., [1 - 1/bins, 1]."""
    return _binned(examples, np.arange(1, bins) / bins)


def equal_mass(examples: Ranked, bins: int = BINS) -> Bins:
    """Bins that begin at the quantiles 0, 1/bins, ... of the confidences."""
    if not len(examples.right):
        return _binned(examples, np.full(bins - 1, 0.5))
    return _binned(examples, np.quantile(examples.confidences, np.arange(1, bins) / bins))


def _binned(examples: Ranked, edges: np.ndarray) -> Bins:
    """Bins that begin at the edges, which are sorted as the examples are."""
    inner = np.searchsorted(examples.confidences, edges)
    at = np.concatenate([[0], inner, [len(examples.right)]])
    sums = (np.concatenate([[0.0], values.cumsum()])[at] for values in examples)
    return Bins(np.diff(at), *map(np.diff, sums))


def expected(bins: Bins) -> float:
    """The gaps' sizes over the number of examples; NaN without examples."""
    count = bins.counts.sum()
    return float(np.abs(bins.gaps).sum() / count) if count else math.nan


def maximum(bins: Bins, least: int = 1) -> float:
    """The largest gap per example of its bin, over bins of so many; NaN without any."""
    enough = bins.counts >= least
    if not enough.any():
        return math.nan
    return float((np.abs(bins.gaps)[enough] / bins.counts[enough]).max())


def probability_of_truth(outputs: Tensor, targets: Tensor) -> Tensor:
    """The softmax probability of each example's true class, as float64 [n]."""
    return probabilities(outputs).gather(1, targets.cpu().unsqueeze(1)).squeeze(1)


def brier(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared distance of each example's probabilities from its class, as float64 [n] in [0, 2].

    outputs: logits [n, K]; targets: classes [n] int64. The sum over all K classes (Brier 1950), so
    for two classes twice what other programs call the Brier score. NaN where an output is not
    finite.
    """
    off = probabilities(outputs)
    off[torch.arange(len(off)), targets.cpu()] -= 1
    return off.square().sum(dim=1)
