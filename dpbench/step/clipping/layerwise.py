"""Clipping each layer's part of a gradient by a separate bound."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.step.clipping.clip import Clip, Sensitivity
from dpbench.step.clipping.functions import ByNorm
from dpbench.step.clipping.problem import Problem
from dpbench.step.gradients import Gradients, Layer
from dpbench.system.errors import UserError

TOGETHER = "All layers are one vector of sensitivity sqrt(sum R_r^2), noised as one."
APART = "The layers are noised by sigma R_r each: one release with sigma/sqrt(L)."


@dataclass(frozen=True)
class Layerwise(Clip):
    """A clipping function for each layer r, with bound R_r = R s_r; R is the bound of `clip`.

    One Gaussian is added to the vector of all layers, scaled by its sensitivity sqrt(sum_r R_r^2).
    shares: s_r, whose squares sum to 1; None for 1/sqrt(L) each. layers: L, once known.
    separate_noise: whether each layer's noise is scaled by its R_r (Bu et al. 2023, Section 4.2):
    in units of that scale, one example moves each layer by 1, and the whole vector by sqrt(L).
    """

    clip: ByNorm
    shares: tuple[float, ...] | Tensor | None = field(default=None, compare=False)
    layers: int | None = None
    separate_noise: bool = False

    @property
    def sensitivity(self) -> Sensitivity:
        return self.clip.sensitivity._replace(
            parts=self.layers,
            composition=APART if self.separate_noise else TOGETHER,
            noise_by_part=self.separate_noise,
        )

    def norms(self, gradients: Gradients) -> Tensor:
        return gradients.layer_norms

    def bounds_of(self, norms: Tensor) -> Tensor:
        """R_r [L] for norms [..., L]."""
        return self.clip.bound * self._shares(norms.shape[-1], norms)

    def _shares(self, number: int, like: Tensor) -> Tensor:
        shares = (number**-0.5,) * number if self.shares is None else self.shares
        return shares if isinstance(shares, Tensor) else like.new_tensor(shares)

    def widths(self, layers: Sequence[Layer], total: Tensor) -> Tensor | None:
        if not self.separate_noise:
            return None
        sizes = total.new_tensor([layer.at.stop - layer.at.start for layer in layers]).long()
        return self._shares(len(layers), total).repeat_interleave(sizes)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return self.clip.at(self.bounds_of(norms)).factors(norms, groups)

    def at(self, bounds: Tensor) -> Self:
        """The same function with these R_r [L]."""
        bounds = bounds.reshape(-1)
        total = torch.linalg.vector_norm(bounds)
        return replace(self, clip=self.clip.at(total), shares=bounds / total)

    def scaled(self, by: float) -> Self:
        return replace(self, clip=self.clip.scaled(by))

    def bind(self, problem: Problem) -> Self:
        names = problem.layers
        if self.shares is not None and len(self.shares) != len(names):
            raise UserError(
                f"method.bound has {len(self.shares)} numbers and the model {len(names)} trained "
                f"layers ({', '.join(names)}): give one number per layer, or a single one."
            )
        return replace(self, layers=len(names))
