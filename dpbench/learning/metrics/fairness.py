"""Group fairness of two-class models."""

import math

import numpy as np
from torch import Tensor

from dpbench.learning.metrics.classification import spread


def group_fairness(
    outputs: Tensor, targets: Tensor, groups: Tensor, group_count: int
) -> dict[str, float]:
    """Demographic parity difference and equalised odds difference, both in [0, 1].

    outputs: logits [n, K]; targets: classes [n] int64, 1 being the favourable one; groups [n]
    int64. The first is the largest difference between two groups in the rate of positive
    predictions; the second the larger of the differences in true and in false positive rate. Both
    equal fairlearn's to the bit, which takes a second to import and is hundreds of times slower.

    Neither is defined for more than two classes or for one group: the result is then empty, not 0.
    A rate over no examples makes its difference NaN; an output that is not finite makes both NaN.
    """
    if outputs.shape[1] != 2 or group_count < 2:
        return {}
    sizes = _per_cell(targets, groups, group_count)
    chosen = outputs.argmax(dim=1) == 1
    positive = _per_cell(targets[chosen], groups[chosen], group_count)
    if not outputs.isfinite().all():
        sizes = sizes * math.nan
    false, true = map(spread, (positive / sizes).T.tolist())
    return {
        "demographic_parity_difference": spread((positive.sum(1) / sizes.sum(1)).tolist()),
        "equalized_odds_difference": float(np.maximum(false, true)),
    }


def _per_cell(targets: Tensor, groups: Tensor, group_count: int) -> Tensor:
    """The number of examples per group and class [groups, 2] float64."""
    return (2 * groups + targets).bincount(minlength=2 * group_count).view(group_count, 2).double()
