"""Clipping with error feedback: what is clipped away is itself clipped and added to later sums."""

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.clipping.clip import Memory, checked_bound
from dpbench.clipping.delegating import DelegatingClip
from dpbench.clipping.functions import ByNorm
from dpbench.gradients import Gradients
from dpbench.system.validate import fraction


@dataclass(frozen=True)
class ErrorFeedback(DelegatingClip):
    """v = sum_i C_i g_i + clip(e, C2), then e <- e + sum_i g_i - v (Zhang et al. 2024, DiceSGD).

    e is the error [D] float64 in units of the sum, 0 at first, and private: it is never released.
    An example may change it in all later steps, by any amount, and so clip(e, C2) by 2 C2 at most.
    error_bound: C2. share: as for `Memory`.
    """

    clip: ByNorm
    error_bound: float
    share: float
    error: Tensor | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        checked_bound("the bound of the error", self.error_bound)
        fraction("method.account_share", self.share)

    @property
    def memory(self) -> Memory:  # type: ignore[override]
        return Memory(2 * self.error_bound / float(self.clip.sensitivity), self.share)

    def reduce(self, gradients: Gradients, factors: Tensor) -> Tensor:
        return clipped_and_plain(gradients, factors)

    def finish(self, total: Tensor) -> Tensor:
        return total[0] + self._fed_back(total).to(total)

    def carried(self, total: Tensor) -> Self:
        clipped, plain = total.double()
        fed_back = self._fed_back(total)
        error = torch.zeros_like(plain) if self.error is None else self.error
        carried = error + plain - clipped - fed_back
        # The plain sum may overflow; any error is allowed, and one that is NaN would be released.
        return replace(self, error=carried.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0))

    def _fed_back(self, total: Tensor) -> Tensor:
        """clip(e, C2) [D] float64."""
        if self.error is None:
            return torch.zeros_like(total[0], dtype=torch.float64)
        norm = torch.linalg.vector_norm(self.error).clamp(min=self.error_bound)
        return self.error * (self.error_bound / norm)


def clipped_and_plain(gradients: Gradients, factors: Tensor) -> Tensor:
    """The weighted sum, and the plain sum of the gradients whose factor is not 0 [2, D]."""
    ones = (factors > 0).to(factors)  # non-finite gradients have a factor of 0
    return torch.stack([gradients.weighted_sum(factors), gradients.weighted_sum(ones)])
