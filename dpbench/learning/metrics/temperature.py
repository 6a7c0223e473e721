"""Temperature scaling: how much of the miscalibration is a matter of the logits' scale."""

import math
from typing import NamedTuple

from torch import Tensor

from dpbench.learning.metrics import classification
from dpbench.learning.metrics.builtin.calibration import ece

LOWEST, HIGHEST = 0.01, 100.0

CAVEAT = (
    "The temperature is fitted on every other tested example, outside the account: no epsilon "
    "covers it unless these examples are public."
)


class TemperatureEffect(NamedTuple):
    """The effect of a temperature on examples that it was not fitted on.

    fitted, measured: numbers of examples. Errors and losses are those of the measured ones.
    """

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
    return ece(outputs, targets), classification.mean(losses)


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
