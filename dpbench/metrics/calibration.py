"""How far a model's confidence is from its accuracy."""

import math
from typing import Literal

import torch
from torch import Tensor

BINS = 15


def expected_calibration_error(outputs: Tensor, targets: Tensor) -> float:
    """Mean over examples of |accuracy - mean confidence| of the example's bin, in [0, 1].

    outputs: logits [n, K]; targets: classes [n] int64. The confidence is the largest softmax
    probability; 15 bins of equal width, the l1 norm, bins weighted by their examples (Guo et al.
    2017, eq. 3). NaN without examples or where an output is not finite.
    """
    return _calibration_error(outputs, targets, "l1")


def maximum_calibration_error(outputs: Tensor, targets: Tensor) -> float:
    """The largest |accuracy - mean confidence| of any bin that has examples, in [0, 1].

    The same bins and the same NaN as the expected error (Guo et al. 2017, eq. 4). It is not
    weighted, so a bin of one example can decide it.
    """
    return _calibration_error(outputs, targets, "max")


def _calibration_error(outputs: Tensor, targets: Tensor, norm: Literal["l1", "max"]) -> float:
    from torchmetrics.functional.classification import multiclass_calibration_error

    if len(outputs) == 0 or not outputs.isfinite().all():
        return math.nan
    error = multiclass_calibration_error(
        _probabilities(outputs), targets, outputs.shape[1], n_bins=BINS, norm=norm
    )
    return error.item()


def _probabilities(outputs: Tensor) -> Tensor:
    """Softmax of logits [n, K], in float32 because torchmetrics bins that, and below 1.

    torchmetrics takes logits that all lie in [0, 1] for probabilities, so it never sees logits.
    It also files a confidence of exactly 1 in a sixteenth bin of its own.
    """
    below_one = 1 - torch.finfo(torch.float32).eps
    return outputs.double().softmax(dim=1).float().clamp(max=below_one)
