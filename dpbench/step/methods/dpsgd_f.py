"""DPSGD-F: one clipping bound per group, derived from noisy counts of the same batch."""

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.privacy.guarantee import JOINT, Guarantee
from dpbench.step.clipping import CountQuery, Problem, Sensitivity, require_style
from dpbench.step.clipping.clip import OneBound, ratio
from dpbench.step.mechanism import Method, as_published

NOISE_TOO_SMALL = Guarantee(
    "none",
    "As published: clips to C_k but scales the noise by C0, less than one example can move the "
    "sum, and divides by the batch's real size.",
)


BASE_IS_NO_BOUND = (
    "Noise is scaled by the base bound, and an example moves the sum by up to its group's bound."
)


def dpsgd_f(bound: float, count_noise_ratio: float, variant: str, style: str = "flat") -> Method:
    """DP-SGD with clipping bounds C_k by group (Xu et al. 2021; Esipova et al. 2023, Algorithm 3).

    count_noise_ratio is sigma_1/sigma. Corrected: noise scaled by the largest C_k over all groups,
    C_k from the mean of the groups' shares as in the authors' code. As published: noise scaled by
    C0, C_k from m/B.
    """
    require_style("flat", style, "dpsgd_f", "its bounds belong to groups, not to layers")
    published = as_published(variant)
    query = CountQuery(count_noise_ratio, before=True, relative=True)
    clip = Groupwise(bound, query, published)
    basis = NOISE_TOO_SMALL if published else JOINT
    return Method("dpsgd_f", clip, basis, variant=variant, by_real_size=published)


@dataclass(frozen=True)
class Groupwise(OneBound):
    """One bound per group, larger for groups with more gradients above the base bound.

    With noisy counts m_k of norms above C0 and o_k of norms up to C0, floored and at least 0,
    r_k = m_k/(m_k + o_k) and C_k = C0 (1 + r_k/r), where r is the mean of the r_k, as in the code
    of Xu et al. 2021. The sensitivity is the largest C_k of all groups, in the batch or not.
    published: as printed (Esipova et al. 2023, Algorithm 3), r is m/B, and noise is scaled by C0,
    which is no bound.
    """

    bound: float
    query: CountQuery = field()
    published: bool
    groups: int = 1
    bounds: Tensor | None = field(default=None, compare=False)
    by_group = True

    @property
    def sensitivity(self) -> Sensitivity:
        if self.published:
            return Sensitivity(self.bound, BASE_IS_NO_BOUND)
        return Sensitivity(self.bound if self.bounds is None else self.bounds.max())

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        bounds = norms.new_full((), self.bound) if self.bounds is None else self.bounds[groups]
        return ratio(bounds, norms, most=1)

    def counts(self, norms: Tensor, groups: Tensor) -> Tensor:
        cell = 2 * groups + (norms > self.bound)
        # Not bincount, which would force a GPU synchronisation.
        return (cell.unsqueeze(1) == torch.arange(2 * self.groups, device=cell.device)).sum(0)

    def updated(self, counts: Tensor, expected_batch_size: float) -> Self:
        up_to, above = counts.floor().clamp(min=0).view(self.groups, 2).unbind(1)
        total = above + up_to
        share = torch.where(total > 0, above / total.clamp(min=1), 1.0)  # 0/0 is taken as 1
        typical = above.sum() / expected_batch_size if self.published else share.mean()
        return replace(self, bounds=self.bound * (1 + share / typical.clamp(min=1e-8)))

    def bind(self, problem: Problem) -> Self:
        return replace(self, groups=len(problem.dataset.groups), bounds=None)

    def scaled(self, by: float) -> Self:
        bounds = None if self.bounds is None else self.bounds * by
        return replace(self, bound=self.bound * by, bounds=bounds)
