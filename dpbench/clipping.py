"""Clips: how norms become factors, and by how much one example can then move the sum.

A clip is a frozen value. It maps the norms of the per-example gradients (and group numbers, if it
uses them) to factors, and states its sensitivity: the largest L2 distance by which adding or taking
away one example moves sum_i factor_i g_i. Noise and ledger read that same number. An adaptive clip
asks a noisy count of the batch and moves only by the answer, to a new value.
"""

from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from dpbench.errors import UserError, positive
from dpbench.gradients import Gradients

Bound = float | Tensor


@dataclass(frozen=True)
class CountQuery:
    """A noisy count beside the gradient sum, of which one example changes one entry by at most 1.

    noise_multiplier: standard deviation of the Gaussian noise, in examples; if `relative`, in
    multiples of the gradient's own noise multiplier. before: whether the answer is needed before
    this batch is clipped (it then costs a second pass over several physical batches).
    """

    noise_multiplier: float
    before: bool
    relative: bool = False

    def __post_init__(self) -> None:
        positive("the noise multiplier of the clip's counts", self.noise_multiplier)

    def multiplier(self, gradient_multiplier: float) -> float:
        """The multiplier itself, given the gradient's."""
        return self.noise_multiplier * (gradient_multiplier if self.relative else 1)


class Clip(Protocol):
    """What the private step asks of a clip."""

    @property
    def sensitivity(self) -> Bound:
        """L2 distance by which one example can move the weighted sum; a scalar."""
        ...

    @property
    def query(self) -> CountQuery | None:
        """The count it asks of each batch, if it is adaptive."""
        ...

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        """Factors [B] from norms [B] and group numbers [B]."""
        ...

    def reduce(self, gradients: Gradients, factors: Tensor) -> Tensor:
        """What is added up over the physical batches: [D] (or more rows, see `finish`)."""
        ...

    def finish(self, total: Tensor) -> Tensor:
        """The sum [D] that noise is added to, from what was added up."""
        ...

    def counts(self, norms: Tensor, groups: Tensor) -> Tensor:
        """The exact counts [Q] of a physical batch, to be added up and noised."""
        ...

    def updated(self, counts: Tensor, expected_batch_size: float) -> "Clip":
        """The clip after its query was answered with the noisy counts [Q]."""
        ...

    def for_groups(self, groups: int) -> "Clip":
        """The clip for data with so many groups."""
        ...


class Weighted:
    """What clips have in common whose sum is a plain weighted sum, whatever the groups."""

    def reduce(self, gradients: Gradients, factors: Tensor) -> Tensor:
        return gradients.weighted_sum(factors)

    def finish(self, total: Tensor) -> Tensor:
        return total

    def for_groups(self, groups: int) -> Self:
        return self


class Fixed(Weighted):
    """What clips have in common that ask nothing of the batch."""

    query: CountQuery | None = None

    def counts(self, norms: Tensor, groups: Tensor) -> Tensor:
        return norms.new_zeros(0)

    def updated(self, counts: Tensor, expected_batch_size: float) -> Self:
        return self


@dataclass(frozen=True)
class Unclipped(Fixed):
    """No clip: every factor is 1, and nothing bounds what one example can do."""

    sensitivity: Bound = float("inf")

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return torch.ones_like(norms)


@dataclass(frozen=True)
class Abadi(Fixed):
    """min(1, C/norm): longer gradients are shortened to the bound C (Abadi et al. 2016)."""

    bound: float

    def __post_init__(self) -> None:
        positive("the clipping bound", self.bound)

    @property
    def sensitivity(self) -> Bound:
        return self.bound

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return (self.bound / norms).clamp(max=1)


@dataclass(frozen=True)
class Global(Fixed):
    """C/Z up to norm Z and 0 beyond: one scale for all that stays (Bu et al. 2021).

    Esipova et al. 2023, Algorithm 2 in black.
    """

    bound: float
    strict_bound: float

    def __post_init__(self) -> None:
        positive("the clipping bound", self.bound)
        positive("the strict clipping bound Z", self.strict_bound)

    @property
    def sensitivity(self) -> Bound:
        return self.bound

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        scale = self.bound / self.strict_bound
        return torch.where(norms <= self.strict_bound, scale, 0.0).to(norms)


@dataclass(frozen=True)
class GlobalAdapt(Weighted):
    """C/Z up to norm Z and C/norm beyond; Z follows a noisy count of norms above tau Z.

    Esipova et al. 2023, Algorithm 2 in red: Z <- Z exp(-eta + count/B), where B is the public
    expected batch size. Either factor leaves a gradient no longer than C, whatever Z is.
    """

    bound: float
    strict_bound: Bound
    threshold: float
    learning_rate: float
    query: CountQuery

    def __post_init__(self) -> None:
        positive("the clipping bound", self.bound)
        positive("the count threshold tau", self.threshold)
        positive("the learning rate of Z", self.learning_rate)
        if not isinstance(self.strict_bound, Tensor):
            positive("the strict clipping bound Z", self.strict_bound)

    @property
    def sensitivity(self) -> Bound:
        return self.bound

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return self.bound / norms.clamp(min=self.strict_bound)

    def counts(self, norms: Tensor, groups: Tensor) -> Tensor:
        return (norms > self.threshold * self.strict_bound).sum().view(1)

    def updated(self, counts: Tensor, expected_batch_size: float) -> "GlobalAdapt":
        growth = torch.exp(counts[0] / expected_batch_size - self.learning_rate)
        # Kept within what a float can square: Z is a released number, so this reveals nothing.
        return replace(self, strict_bound=(self.strict_bound * growth).clamp(1e-12, 1e12))


@dataclass(frozen=True)
class Groupwise(Weighted):
    """Each group has its own bound, larger where more of its gradients are long.

    DPSGD-F (Xu et al. 2021; Esipova et al. 2023, Algorithm 3): with noisy counts m_k of norms above
    C0 and o_k of norms up to C0, floored and at least 0, r_k = m_k/(m_k + o_k) and
    C_k = C0 (1 + r_k/r), where r is `reference`: "batch" for m/B as printed, "groups" for the mean
    of the r_k as in the authors' code. The two agree where groups are balanced.

    sensitivity_from: "largest" takes the largest C_k over all groups, present or not, which holds;
    "base" takes C0 as printed in Algorithm 3, which does not bound what one example can do.
    """

    bound: float
    query: CountQuery
    reference: str
    sensitivity_from: str
    groups: int = 1
    bounds: Tensor | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        positive("the clipping bound", self.bound)
        for name, known in (
            ("reference", ("batch", "groups")),
            ("sensitivity_from", ("largest", "base")),
        ):
            if getattr(self, name) not in known:
                raise UserError(f"{name} must be one of {known}, got {getattr(self, name)!r}.")

    @property
    def sensitivity(self) -> Bound:
        if self.sensitivity_from == "base" or self.bounds is None:
            return self.bound
        return self.bounds.max()

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        bounds = norms.new_full((), self.bound) if self.bounds is None else self.bounds[groups]
        return (bounds / norms).clamp(max=1)

    def counts(self, norms: Tensor, groups: Tensor) -> Tensor:
        cell = 2 * groups + (norms > self.bound)
        # Not bincount, for which a GPU has to wait.
        return (cell.unsqueeze(1) == torch.arange(2 * self.groups, device=cell.device)).sum(0)

    def updated(self, counts: Tensor, expected_batch_size: float) -> "Groupwise":
        up_to, above = counts.floor().clamp(min=0).view(self.groups, 2).unbind(1)
        both = above + up_to
        share = torch.where(both > 0, above / both.clamp(min=1), 1.0)  # 0/0 reads as 1
        typical = above.sum() / expected_batch_size if self.reference == "batch" else share.mean()
        return replace(self, bounds=self.bound * (1 + share / typical.clamp(min=1e-8)))

    def for_groups(self, groups: int) -> "Groupwise":
        return replace(self, groups=groups, bounds=None)
