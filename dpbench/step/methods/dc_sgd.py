"""DC-SGD: DP-SGD with the bound of least expected error, by a noisy histogram of norms."""

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.privacy.guarantee import JOINT
from dpbench.step.clipping import Abadi, CountQuery, Problem
from dpbench.step.clipping.clip import check_bound
from dpbench.step.mechanism import Method
from dpbench.system.errors import UserError
from dpbench.system.validate import integer

MAX_BINS = 4096


def dc_sgd(bound: float, bins: int, most: float, histogram_noise_ratio: float) -> Method:
    """DP-SGD with the clip `LeastError` (Wei et al. 2025, DC-SGD-E).

    bound is the initial R, histogram_noise_ratio sigma_H/sigma_T.
    """
    query = CountQuery(histogram_noise_ratio, before=False, relative=True)
    return Method("dc_sgd", LeastError(bound, bins, most, query), JOINT)


@dataclass(frozen=True)
class LeastError(Abadi):
    """min(1, R/norm), where R minimises noise plus bias (Wei et al. 2025, DC-SGD-E).

    A noisy histogram of a batch's norms has `bins` of equal width up to `most`; norms above it
    count in the last one. R is the upper end c of a bin, the one with the least sigma^2 c^2 d/B^2 +
    mean(max(norm - c, 0)^2), for noise multiplier sigma, d coordinates and expected batch size B,
    with norms at the centres of their bins and no bin below 0. It applies from the next batch on.
    """

    bins: int
    most: float
    query: CountQuery = field()
    size: int = 1
    noise_multiplier: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("method.bins", self.bins, most=MAX_BINS)
        check_bound("method.most", self.most)
        check_bound("method.most over method.bins", self.most / self.bins)

    def bind(self, problem: Problem) -> Self:
        return replace(self, size=problem.size)

    def counts(self, norms: Tensor, groups: Tensor) -> Tensor:
        bins = (norms * (self.bins / self.most)).floor().clamp(max=self.bins - 1)
        bins = torch.where(norms.isfinite(), bins, -1.0)
        # Not bincount, which would force a GPU synchronisation.
        return (bins.unsqueeze(1) == torch.arange(self.bins, device=bins.device)).sum(0)

    def at_noise(self, noise_multiplier: float) -> Self:
        return replace(self, noise_multiplier=noise_multiplier)

    def updated(self, counts: Tensor, expected_batch_size: float) -> Self:
        share = counts.clamp(min=0)
        share = share / share.sum().clamp(min=1e-8)
        width = self.most / self.bins
        ends = width * torch.arange(1, self.bins + 1, dtype=counts.dtype, device=counts.device)
        centres = ends - width / 2
        lost = (centres - ends.unsqueeze(1)).clamp(min=0).square() @ share
        noise = (self.noise_multiplier * ends / expected_batch_size).square() * self.size
        return replace(self, bound=ends.take((noise + lost).argmin()))

    def scaled(self, by: float) -> Self:
        raise UserError("a bound of least error has no schedule; leave schedule.bound 1.")
