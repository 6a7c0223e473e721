"""Gaussian noise whose bits say nothing of the sum: drawn in float64, and rounded with the sum."""

import math

import torch
from torch import Tensor


def noisy(total: Tensor, scale: float, generator: torch.Generator | None = None) -> Tensor:
    """The sum plus noise of this standard deviation, on a grid that depends only on the scale."""
    draws = torch.randn(total.shape, generator=generator, dtype=torch.float64)
    step = 2.0 ** (math.floor(math.log2(scale)) - 18)
    return ((total.double() + scale * draws) / step).round() * step
