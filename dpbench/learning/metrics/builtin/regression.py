"""Metrics of regression, from outputs [n, 1] and targets [n] in the targets' unit."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dpbench.learning.metrics.classification import mean
from dpbench.learning.metrics.metric import Margin, Metric

if TYPE_CHECKING:
    from torch import Tensor


def mse(outputs: "Tensor", targets: "Tensor", groups: "Tensor") -> float:
    """The mean squared error."""
    return mean(_errors(outputs, targets).square())


def rmse(outputs: "Tensor", targets: "Tensor", groups: "Tensor") -> float:
    """The root of the mean squared error."""
    return math.sqrt(mse(outputs, targets, groups))


def mae(outputs: "Tensor", targets: "Tensor", groups: "Tensor") -> float:
    """The mean absolute error."""
    return mean(_errors(outputs, targets).abs())


def r2(outputs: "Tensor", targets: "Tensor", groups: "Tensor") -> float:
    """1 - (sum of squared errors) / (sum of squared distances from the mean of the targets); NaN if
    all targets are equal."""
    numbers = targets.double()
    spread = (numbers - numbers.mean()).square().sum()
    squares = _errors(outputs, targets).square().sum()
    return (1 - squares / spread).item() if spread > 0 else math.nan


def _errors(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """The errors [n] float64, NaN instead of infinite ones."""
    errors = outputs.squeeze(1).double() - targets.double()
    return errors.masked_fill(~errors.isfinite(), math.nan)


MSE = Metric("mean squared error", "", None, "lower", compute=mse, task="regression")
RMSE = replace(MSE, label="root mean squared error", compute=rmse)
MAE = replace(MSE, label="mean absolute error", compute=mae)
R2 = replace(MSE, label="R²", better="higher", margin=Margin(0.01), compute=r2)
