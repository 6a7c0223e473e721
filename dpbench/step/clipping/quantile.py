"""A bound that tracks a quantile of the gradient norms by noisy counts."""

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.step.clipping.clip import (
    MAX_BOUND,
    MAX_FACTOR,
    MIN_BOUND,
    CountQuery,
    DelegatingClip,
    Sensitivity,
    check_bound,
)
from dpbench.step.clipping.functions import ByNorm
from dpbench.step.clipping.layerwise import Layerwise
from dpbench.system.errors import UserError
from dpbench.system.validate import fraction, positive


@dataclass(frozen=True)
class Quantile(DelegatingClip):
    """R <- R exp(-eta (b - gamma)), b the noisy fraction of norms up to R (Andrew et al. 2021).

    The count sums +1 for each norm up to R and -1 for each above, so that one example moves it by 1
    and the real batch size hardly matters: b = (count/B + 1)/2 with the expected batch size B.
    Layerwise, each layer has its own R, and its count over sqrt(L): their joint sensitivity is 1.
    gamma is `quantile`, eta `learning_rate`. threshold: norms up to this multiple of R count as
    within R. lower_bound: of R; layerwise, lower_bound/sqrt(L) of each R_r.
    """

    clip: ByNorm | Layerwise
    quantile: float
    learning_rate: float
    query: CountQuery = field()
    threshold: float = 1.0
    lower_bound: float = MIN_BOUND

    def __post_init__(self) -> None:
        positive("the learning rate of the bound", self.learning_rate)
        fraction("the clipping quantile", self.quantile, zero=True, one=True)
        positive("the count threshold", self.threshold)
        check_bound("the lower bound of the clipping bound (method.lower_bound)", self.lower_bound)

    def counts(self, norms: Tensor, groups: Tensor) -> Tensor:
        signs = torch.where(norms <= self.threshold * self.clip.bounds_of(norms), 1.0, -1.0)
        total = signs.sum(0, dtype=torch.float64).view(-1)
        return total / len(total) ** 0.5

    def updated(self, counts: Tensor, expected_batch_size: float) -> Self:
        below = (counts * len(counts) ** 0.5 / expected_batch_size + 1) / 2
        growth = torch.exp(self.learning_rate * (self.quantile - below))
        # R is a released number, so clamping it to the valid range is post-processing.
        least = max(self.lower_bound / len(counts) ** 0.5, MIN_BOUND)
        bounds = (self.clip.bounds_of(growth) * growth).clamp(least, MAX_BOUND)
        return replace(self, clip=self.clip.at(bounds.squeeze()))

    def scaled(self, by: float) -> Self:
        raise UserError("a bound that tracks a quantile has no schedule; leave schedule.bound 1.")


@dataclass(frozen=True)
class NormalisedQuantile(Quantile):
    """A `Quantile` in units of its bound: factors over R, so that the sensitivity is 1 for any R.

    The noisy mean is then that of `Quantile` over R: the learning rate does not shrink with R (De
    et al. 2022, Section 2; Zhao et al. 2025).
    """

    @property
    def sensitivity(self) -> Sensitivity:
        return self.clip.sensitivity._replace(bound=1.0)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        factors = super().factors(norms, groups) / self.clip.sensitivity.bound
        return factors.clamp(max=MAX_FACTOR)
