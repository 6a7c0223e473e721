"""Global scaling whose bound Z adapts by noisy counts."""

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.clipping.clip import (
    MAX_BOUND,
    MIN_BOUND,
    Bound,
    Clip,
    CountQuery,
    checked_bound,
    ratio,
)
from dpbench.system.validate import positive


@dataclass(frozen=True)
class GlobalAdapt(Clip):
    """C/Z up to norm Z and C/norm beyond; Z follows a noisy count of norms above tau Z.

    Esipova et al. 2023, Algorithm 2 in red: Z <- Z exp(-eta + count/B), where B is the public
    expected batch size. Either factor bounds the scaled norm by C, for any Z.
    """

    bound: float
    strict_bound: Bound
    threshold: float
    learning_rate: float
    query: CountQuery = field()

    def __post_init__(self) -> None:
        checked_bound("the clipping bound (method.bound)", self.bound)
        positive("the count threshold tau", self.threshold)
        positive("the learning rate of Z", self.learning_rate)
        if not isinstance(self.strict_bound, Tensor):
            checked_bound("the strict clipping bound Z", self.strict_bound)

    @property
    def sensitivity(self) -> Bound:
        return self.bound

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return ratio(self.bound, norms.clamp(min=self.strict_bound))

    def counts_by_norm(self, norms: Tensor, groups: Tensor) -> Tensor:
        return (norms > self.threshold * self.strict_bound).sum().view(1)

    def updated(self, counts: Tensor, expected_batch_size: float) -> Self:
        growth = torch.exp(counts[0] / expected_batch_size - self.learning_rate)
        # Z is a released number, so clamping it to the valid range is post-processing.
        strict_bound = (self.strict_bound * growth).clamp(MIN_BOUND, MAX_BOUND)
        return replace(self, strict_bound=strict_bound)

    def scaled(self, by: float) -> Self:
        return replace(self, bound=self.bound * by)
