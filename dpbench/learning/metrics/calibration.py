"""Calibration: how close a model's confidence is to its accuracy, also after a temperature; and
prediction sets, of all classes whose score is at most a threshold."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpbench.learning.metrics import classification

BINS = 15

LOWEST, HIGHEST = 0.01, 100.0

CAVEAT = (
    "The temperature is fitted on every other tested example, outside the account: no epsilon "
    "covers it unless these examples are public."
)


class RankedExamples(NamedTuple):
    """Examples by increasing confidence: both columns float64 [n], confidences in [0, 1]."""

    confidences: np.ndarray
    correct: np.ndarray  # 1 where the predicted class is the true one, else 0


class Bins(NamedTuple):
    """Sums over the examples of each bin [bins]."""

    counts: np.ndarray  # int64
    confidences: np.ndarray
    correct: np.ndarray

    @property
    def gaps(self) -> np.ndarray:
        """Examples times (accuracy - mean confidence); 0 in a bin without examples."""
        return self.correct - self.confidences


def rank_by_confidence(outputs: Tensor, targets: Tensor) -> RankedExamples:
    """Examples by confidence, from logits [n, K] and classes [n]; empty if one is not finite."""
    if not outputs.isfinite().all():
        return RankedExamples(np.empty(0), np.empty(0))
    confidences, classes = probabilities(outputs).max(dim=1)
    confidences, order = confidences.sort(stable=True)
    return RankedExamples(confidences.numpy(), (classes == targets.cpu())[order].double().numpy())


def probabilities(outputs: Tensor) -> Tensor:
    """Softmax of logits [n, K], as float64 on the CPU."""
    return outputs.detach().cpu().double().softmax(dim=1)


def equal_width(examples: RankedExamples, bins: int = BINS) -> Bins:
    """Bins [0, 1/bins), ..., [1 - 1/bins, 1]."""
    return _binned(examples, np.arange(1, bins) / bins)


def equal_mass(examples: RankedExamples, bins: int = BINS) -> Bins:
    """Bins that begin at the quantiles 0, 1/bins, ... of the confidences."""
    if not len(examples.correct):
        return _binned(examples, np.full(bins - 1, 0.5))
    return _binned(examples, np.quantile(examples.confidences, np.arange(1, bins) / bins))


def _binned(examples: RankedExamples, edges: np.ndarray) -> Bins:
    inner = np.searchsorted(examples.confidences, edges)
    return bins_between(examples, np.concatenate([[0], inner, [len(examples.correct)]]))


def bins_between(examples: RankedExamples, starts: np.ndarray) -> Bins:
    """Bins that begin at these ranks, the last of which is n; with leading axes, for each row."""
    sums = (np.take_along_axis(_cumulative_sums(values), starts, axis=-1) for values in examples)
    return Bins(np.diff(starts), *map(np.diff, sums))


def _cumulative_sums(values: np.ndarray) -> np.ndarray:
    """The sums of the first 0, 1, ..., n values [..., n + 1]."""
    return np.concatenate([np.zeros((*values.shape[:-1], 1)), values.cumsum(axis=-1)], axis=-1)


def expected(bins: Bins) -> float:
    """The sum of the absolute gaps over the number of examples; NaN without examples."""
    count = bins.counts.sum()
    return float(np.abs(bins.gaps).sum() / count) if count else math.nan


def maximum(bins: Bins, least: int = 1) -> float:
    """The largest gap per example among bins with `least` or more; NaN if there are none."""
    enough = bins.counts >= least
    if not enough.any():
        return math.nan
    return float((np.abs(bins.gaps)[enough] / bins.counts[enough]).max())


def probability_of_truth(outputs: Tensor, targets: Tensor) -> Tensor:
    """The softmax probability of each example's true class, as float64 [n]."""
    return probabilities(outputs).gather(1, targets.cpu().unsqueeze(1)).squeeze(1)


def brier(outputs: Tensor, targets: Tensor) -> Tensor:
    """The Brier score of each example, as float64 [n] in [0, 2].

    outputs: logits [n, K]; targets: classes [n] int64. The squared error summed over all K classes
    (Brier 1950), so for two classes twice what other programs call the Brier score. NaN where an
    output is not finite.
    """
    errors = probabilities(outputs)
    errors[torch.arange(len(errors)), targets.cpu()] -= 1
    return errors.square().sum(dim=1)


class TemperatureEffect(NamedTuple):
    """The effect of a temperature on examples that it was not fitted on. fitted, measured: numbers
    of examples. Errors and losses are those of the measured ones."""

    temperature: float
    fitted: int
    measured: int
    ece_before: float
    ece: float
    nll_before: float
    nll: float


def effect_of_scaling(outputs: Tensor, targets: Tensor) -> TemperatureEffect:
    """Fits a temperature on the examples with even indices, and measures its effect on the others.

    outputs: logits [n, K]; targets: classes [n] int64. Contiguous halves may differ, as where
    examples are sorted (MNIST's first 5,000 test images are the cleaner ones). NaN with fewer than
    two examples or if an output is not finite. See CAVEAT.
    """
    temperature = fitted_temperature(outputs[::2], targets[::2])
    logits, classes = outputs[1::2].double(), targets[1::2]
    before, after = (_errors(o, classes) for o in (logits, logits / temperature))
    return TemperatureEffect(
        temperature, len(outputs[::2]), len(classes), before[0], after[0], before[1], after[1]
    )


def _errors(outputs: Tensor, targets: Tensor) -> tuple[float, float]:
    losses = classification.negative_log_likelihood(outputs, targets)
    ece = expected(equal_width(rank_by_confidence(outputs, targets)))
    return ece, classification.mean(losses)


def fitted_temperature(outputs: Tensor, targets: Tensor) -> float:
    """The T from 0.01 to 100 with the least mean NLL of outputs / T (Guo et al. 2017, section 4.2).

    outputs: logits [n, K]; targets: classes [n] int64. About 0.01 if every class is predicted
    correctly. NaN without examples or if an output is not finite.
    """
    from scipy.optimize import minimize_scalar

    if not len(outputs) or not outputs.isfinite().all():
        return math.nan
    logits = outputs.double()

    def loss(log_temperature: float) -> float:
        rescaled = logits / math.exp(log_temperature)
        return classification.mean(classification.negative_log_likelihood(rescaled, targets))

    # The loss is convex in 1/T, so it has a single minimum in log T too.
    bounds = (math.log(LOWEST), math.log(HIGHEST))
    minimum = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return math.exp(minimum.x)


def scores_of_truth(outputs: Tensor, targets: Tensor) -> Tensor:
    """The score 1 - probability of each example's true class [n], from logits [n, K]."""
    return 1 - probability_of_truth(outputs, targets)


def set_metrics(
    outputs: Tensor, targets: Tensor, groups: Tensor, names: Sequence[str], threshold: float
) -> dict[str, float]:
    """How many sets have the true class, of all examples and of each group, and how many classes a
    set has; from logits [n, K], classes [n] and groups [n] with names."""
    sets = 1 - probabilities(outputs) <= threshold
    covered = (scores_of_truth(outputs, targets) <= threshold).double()
    by_group = [
        classification.mean(covered[groups.cpu() == number]) for number in range(len(names))
    ]
    measured = [share for share in by_group if not math.isnan(share)]
    return {
        "coverage": classification.mean(covered),
        "set_size": classification.mean(sets.sum(dim=1)),
        "worst_group_coverage": min(measured, default=math.nan),
        **{f"coverage/{name}": share for name, share in zip(names, by_group, strict=True)},
    }
