"""An ablation: does clipping do harm by the wrong length or by the wrong direction?

Neither method is private: both need the unclipped batch gradient.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.privacy.guarantee import NON_PRIVATE
from dpbench.step.clipping import Abadi, Sensitivity
from dpbench.step.clipping.clip import OneBound
from dpbench.step.gradients import Gradients
from dpbench.step.mechanism import Method, NoNoise
from dpbench.step.methods.dicesgd import clipped_and_plain


@dataclass(frozen=True)
class Exchange(OneBound):
    """The length of one batch gradient along the direction of the other.

    length_of_clipped: the length of the clipped sum along the unclipped sum (only the length is
    wrong); otherwise the reverse (only the direction is wrong).
    Esipova et al. 2023, Table 1 and appendix B.4.
    """

    length_of_clipped: bool

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(math.inf)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return Abadi(self.bound).factors(norms, groups)

    def reduce(self, gradients: Gradients, factors: Tensor) -> Tensor:
        return clipped_and_plain(gradients, factors)

    def finish(self, total: Tensor) -> Tensor:
        length, direction = total if self.length_of_clipped else total.flip(0)
        norm = torch.linalg.vector_norm
        return direction * (norm(length) / norm(direction).clamp(min=1e-30))


def magnitude_error(bound: float) -> Method:
    """Steps along (|clipped| / |unclipped|) unclipped: correct direction, clipped length."""
    clip = Exchange(bound, length_of_clipped=True)
    return Method("magnitude_error", clip, NON_PRIVATE, noise=NoNoise())


def direction_error(bound: float) -> Method:
    """Steps along (|unclipped| / |clipped|) clipped: correct length, clipped direction."""
    clip = Exchange(bound, length_of_clipped=False)
    return Method("direction_error", clip, NON_PRIVATE, noise=NoNoise())
