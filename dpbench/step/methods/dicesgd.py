"""DiceSGD: DP-SGD with error feedback, against the bias of clipping."""

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.privacy.guarantee import CORRECTED, Guarantee
from dpbench.step.clipping import Abadi, ByNorm, DelegatingClip, Sensitivity
from dpbench.step.clipping.clip import Memory, check_bound
from dpbench.step.gradients import Gradients
from dpbench.step.mechanism import Method, as_published, checked
from dpbench.system.validate import Fraction

GUARANTEE = Guarantee(
    "proven",
    "Each step is a Poisson-sampled Gaussian mechanism for the gradients and, without sampling, "
    "one for the error fed back, which an example may have moved in any earlier step.",
)


NOT_ACCOUNTED = Guarantee(
    "none",
    "As published: an example moves the error of all later steps by up to twice its bound, and the "
    "authors' code accounts for the gradients of each step alone.",
)


@checked
def dicesgd(
    bound: float, error_bound: float, account_share: Fraction, variant: str = CORRECTED
) -> Method:
    """Clipped gradients plus the clipped error of earlier steps (Zhang et al. 2024).

    bound is C1 and error_bound C2, both of sums. account_share: the share s of the noise's variance
    that accounting assigns to the error; it affects only epsilon. variant="paper" is the authors'
    code, which has neither: C2 is C1, and the noise is scaled by 2 C1. The proof is on the card.
    """
    if as_published(variant):
        clip = AsPublished(Abadi(bound), error_bound=bound, share=0.0)
        return Method("dicesgd", clip, NOT_ACCOUNTED, variant=variant)
    return Method("dicesgd", ErrorFeedback(Abadi(bound), error_bound, account_share), GUARANTEE)


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
        check_bound("the bound of the error", self.error_bound)

    @property
    def memory(self) -> Memory:  # type: ignore[override]
        return Memory(2 * self.error_bound / float(self.sensitivity.bound), self.share)

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


@dataclass(frozen=True)
class AsPublished(ErrorFeedback):
    """Error feedback with the noise of the authors' code, which is scaled by 2 C1."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(2 * self.clip.sensitivity.bound)


def clipped_and_plain(gradients: Gradients, factors: Tensor) -> Tensor:
    """The weighted sum, and the plain sum of the gradients whose factor is not 0 [2, D]."""
    ones = (factors > 0).to(factors)  # non-finite gradients have a factor of 0
    return torch.stack([gradients.weighted_sum(factors), gradients.weighted_sum(ones)])
