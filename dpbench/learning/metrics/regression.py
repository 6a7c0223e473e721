"""Metrics of regression."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dpbench.learning.metrics.classification import check_shapes, mean, mean_per_group


def evaluate_regression(
    outputs: Tensor, losses: Tensor, targets: Tensor, groups: Tensor, group_names: Sequence[str]
) -> dict[str, float]:
    """Every regression metric over all n examples of a split, under flat names.

    outputs [n, 1] and targets [n] in the targets' unit; losses: the training loss of each example
    [n]; groups [n] int64.

    Returns `loss`, `mse`, `rmse`, `mae`, `r2` and `loss/<group>`. An empty group or a diverged
    model gives NaN, and r2 is NaN if all targets are equal. Raises ValueError if the shapes
    disagree or a group has no name.
    """
    outputs, losses, targets, groups = (
        t.detach().cpu() for t in (outputs, losses, targets, groups)
    )
    check_shapes(outputs, (losses, targets), groups, group_names, width=1)
    # NaN instead of infinite errors.
    errors = outputs.squeeze(1).double() - targets.double()
    errors = errors.masked_fill(~errors.isfinite(), torch.nan)
    squares = errors.square()
    return {
        **regression_fit_metrics(outputs, losses, targets, groups, group_names),
        "mse": mean(squares),
        "rmse": math.sqrt(mean(squares)),
        "mae": mean(errors.abs()),
        "r2": _r_squared(squares, targets.double()),
    }


def regression_fit_metrics(
    outputs: Tensor, losses: Tensor, targets: Tensor, groups: Tensor, group_names: Sequence[str]
) -> dict[str, float]:
    """The fit to a split: `loss` and `loss/<group>`."""
    losses, groups = losses.detach().cpu(), groups.cpu()
    by_group = mean_per_group(losses, groups, group_names).items()
    return {"loss": mean(losses), **{f"loss/{name}": value for name, value in by_group}}


def _r_squared(squares: Tensor, targets: Tensor) -> float:
    """1 - (sum of squared errors) / (sum of squared distances from the mean of the targets)."""
    spread = (targets - targets.mean()).square().sum()
    return (1 - squares.sum() / spread).item() if spread > 0 else math.nan
