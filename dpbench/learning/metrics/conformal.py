"""Prediction sets of a classifier, of all classes whose score is at most a threshold."""

import math
from collections.abc import Sequence

from torch import Tensor

from dpbench.learning.metrics.calibration import probabilities, probability_of_truth
from dpbench.learning.metrics.classification import mean


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
    by_group = [mean(covered[groups.cpu() == number]) for number in range(len(names))]
    measured = [share for share in by_group if not math.isnan(share)]
    return {
        "coverage": mean(covered),
        "set_size": mean(sets.sum(dim=1)),
        "worst_group_coverage": min(measured, default=math.nan),
        **{f"coverage/{name}": share for name, share in zip(names, by_group, strict=True)},
    }
