"""Accuracy and loss, over all examples and per group."""

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
    """-log softmax(outputs)[target] of each example in nats, as float64 [n].

    outputs: logits [n, K]; targets: classes [n] int64. NaN where the outputs are not all finite.
    """
    chosen = outputs.double().log_softmax(dim=1).gather(1, targets.unsqueeze(1))
    return -chosen.squeeze(1).masked_fill(~outputs.isfinite().all(dim=1), math.nan)


def mean(values: "Tensor") -> float:
    """The mean of values [n]; NaN if there are none or one is NaN."""
    return values.double().mean().item()


def spread(values: Sequence[float]) -> float:
    """The largest minus the smallest; NaN if one of them is NaN."""
    return math.nan if any(map(math.isnan, values)) else max(values) - min(values)
