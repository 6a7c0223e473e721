"""Accuracy and loss, over all examples and per group, and the fairness of two-class models."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def correct(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Whether each example is classified correctly, as float64 [n] of 0, 1 or NaN.

    outputs: logits [n, K]; targets: classes [n] int64. NaN where an output is not finite, since
    argmax would return an arbitrary class.
    """
    hits = (outputs.argmax(dim=1) == targets).double()
    return hits.masked_fill(~outputs.isfinite().all(dim=1), math.nan)


def negative_log_likelihood(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """-log softmax(outputs)[target] of each example in nats, as float64 [n]. outputs: logits [n,
    K]; targets: classes [n] int64. NaN where the outputs are not all finite."""
    chosen = outputs.double().log_softmax(dim=1).gather(1, targets.unsqueeze(1))
    return -chosen.squeeze(1).masked_fill(~outputs.isfinite().all(dim=1), math.nan)


def mean(values: "Tensor") -> float:
    """The mean of values [n]; NaN if there are none or one is NaN."""
    return values.double().mean().item()


def spread(values: Sequence[float]) -> float:
    """The largest minus the smallest; NaN if one of them is NaN."""
    return math.nan if any(map(math.isnan, values)) else max(values) - min(values)


def group_fairness(
    outputs: "Tensor", targets: "Tensor", groups: "Tensor", group_count: int
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
        "equalized_odds_difference": math.nan if math.isnan(false + true) else max(false, true),
    }


def _per_cell(targets: "Tensor", groups: "Tensor", group_count: int) -> "Tensor":
    """The number of examples per group and class [groups, 2] float64."""
    return (2 * groups + targets).bincount(minlength=2 * group_count).view(group_count, 2).double()
