"""Group fairness of two-class models."""

import math

import numpy as np
import torch
from torch import Tensor


def group_fairness(
    outputs: Tensor, targets: Tensor, groups: Tensor, group_count: int
) -> dict[str, float]:
    """Demographic parity difference and equalised odds difference, both in [0, 1].

    outputs: logits [n, K]; targets: classes [n] int64, 1 being the favourable one; groups [n]
    int64. The first is the largest difference between two groups in the rate of positive
    predictions; the second the larger of the differences in true and in false positive rate
    (fairlearn).

    Neither is defined for more than two classes or for one group: the result is then empty, not 0.
    A rate over no examples makes its difference NaN, and so does an output that is not finite.
    """
    if outputs.shape[1] != 2 or group_count < 2:
        return {}
    counts = _examples_per_cell(targets, groups, group_count)
    valid = bool(outputs.isfinite().all())
    parity = valid and bool((counts.sum(dim=1) > 0).all())
    odds = valid and bool((counts > 0).all())
    arrays = (targets.numpy(), outputs.argmax(dim=1).numpy(), groups.numpy())
    return {
        "demographic_parity_difference": _parity(*arrays) if parity else math.nan,
        "equalized_odds_difference": _odds(*arrays) if odds else math.nan,
    }


def _examples_per_cell(targets: Tensor, groups: Tensor, group_count: int) -> Tensor:
    """The number of examples per group and class [groups, 2]; fairlearn takes 0/0 to be 0."""
    return torch.bincount(2 * groups + targets, minlength=2 * group_count).view(group_count, 2)


def _parity(targets: np.ndarray, predictions: np.ndarray, groups: np.ndarray) -> float:
    from fairlearn.metrics import demographic_parity_difference

    return float(demographic_parity_difference(targets, predictions, sensitive_features=groups))


def _odds(targets: np.ndarray, predictions: np.ndarray, groups: np.ndarray) -> float:
    from fairlearn.metrics import equalized_odds_difference

    return float(equalized_odds_difference(targets, predictions, sensitive_features=groups))
