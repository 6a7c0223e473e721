"""ASC: groups with larger losses are sampled more often, with smaller bounds."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import torch
from msgspec import Meta
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Clip, CountQuery, Problem, Sensitivity
from dpbench.step.clipping.clip import OneBound, check_bound, ratio
from dpbench.step.gradients import DelegatingGradients, Engine, Gradients
from dpbench.step.mechanism import Gradient, Method, ReleasedState, checked
from dpbench.system.validate import NonNegative, Positive

GUARANTEE = Guarantee(
    "proven",
    "Gradient sum and noisy losses are one joint Gaussian release per Poisson batch, and a group "
    "that is sampled k times as often moves both by 1/k as much, which costs no more Rényi "
    "divergence.",
)


@checked
def asc(
    bound: float,
    least_share: Annotated[float, Meta(gt=0, le=1)],
    learning_rate: NonNegative,
    loss_bound: Positive,
    loss_noise_ratio: float,
) -> Method:
    """Sampling rate and bound of each group by its noisy loss (Cairney-Leeming et al. 2026).

    bound: of a group that is sampled at the rate of the batches. least_share: the share of that
    rate below which no group's falls. learning_rate: of the shares. loss_bound: losses are clipped
    to [0, loss_bound]. loss_noise_ratio: the noise multiplier of the losses over that of the sum.
    """
    query = CountQuery(loss_noise_ratio, before=False, relative=True)
    clip = SampledGroups(bound, least_share, learning_rate, loss_bound, query)
    return Method("asc", clip, GUARANTEE, GroupLosses(least_share, loss_bound))


@dataclass(frozen=True)
class SampledGroups(OneBound):
    """min(1, C_g/norm), C_g = bound/p_g, where group g is sampled at p_g times the batches' rate.

    The shares p_g start at 1. With the noisy mean loss l_g of each group,
    p_g <- max(least_share, p_g exp(learning_rate l_g)/m), where m makes the largest share 1.
    """

    least_share: float
    learning_rate: float
    loss_bound: float
    query: CountQuery = field()
    group_shares: Tensor | None = field(default=None, compare=False)
    by_group = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bound("method.bound over method.least_share", self.bound / self.least_share)

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(self.bound / self.least_share, share=self.least_share)

    def bind(self, problem: Problem) -> Self:
        return replace(self, group_shares=torch.ones(len(problem.dataset.groups)))

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        shares = self.group_shares
        shares = norms.new_ones(()) if shares is None else shares.to(norms)[groups]
        return ratio(self.bound / shares, norms, most=1)

    def updated(self, counts: Tensor, expected_batch_size: float) -> Self:
        sums, sizes = counts.view(2, -1)
        losses = self.loss_bound * (sums / sizes.clamp(min=1)).clamp(0, 1)
        assert self.group_shares is not None
        growth = (self.learning_rate * (losses - losses.max())).exp()
        shares = self.group_shares.to(losses) * growth
        return replace(self, group_shares=(shares / shares.max()).clamp(min=self.least_share))


@dataclass(frozen=True)
class GroupLosses(Gradient):
    """Each example's gradient; the counts [2 G] are sums of losses and sizes by group.

    An example of group g adds (loss/loss_bound, 1)/sqrt(2) times least_share/p_g: with the
    probability of being in the batch, its part does not depend on p_g on average.
    """

    least_share: float
    loss_bound: float

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        gradients = DelegatingGradients(engine(batch))
        losses = gradients.losses.double()
        assert clip.group_shares is not None
        weights = self.least_share / 2**0.5 / clip.group_shares.to(losses)
        numbers = torch.arange(len(weights), device=losses.device)
        members = (batch.groups.unsqueeze(1) == numbers).double()
        rows = torch.stack([(losses / self.loss_bound).clamp(0, 1), torch.ones_like(losses)])
        gradients.counts = (rows.where(losses.isfinite(), 0) @ members * weights).flatten()
        return gradients
