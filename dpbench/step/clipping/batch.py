"""One factor for the whole batch: a baseline in the analysis of clipping."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.step.clipping.clip import OneBound, Sensitivity

TWICE = (
    "One factor for a whole batch depends on all of its examples: taking one away can move the "
    "sum by twice the bound that the noise is scaled by."
)


@dataclass(frozen=True)
class BatchClip(OneBound):
    """min(1, R/|sum_i g_i|) for every example: the sum keeps its direction (Bu et al. 2023).

    The noise is scaled by R, as in their Equation 4.1; "batch clipping" in their Table 1.
    """

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(self.bound, TWICE)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return torch.ones_like(norms)

    def finish(self, total: Tensor) -> Tensor:
        return total * (self.bound / torch.linalg.vector_norm(total)).clamp(max=1)
