"""Clipping each layer's part of a gradient by a bound of its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from dpbench.clipping.clip import Bound, Fixed
from dpbench.clipping.functions import ByNorm
from dpbench.errors import UserError
from dpbench.gradients import Gradients


@dataclass(frozen=True)
class Layerwise(Fixed):
    """A clipping function for each layer r, with bound R_r = R s_r; R is the bound of `clip`.

    Composition: all layers are one vector, of which one example moves no more than
    sqrt(sum_r R_r^2). That is the sensitivity, and one Gaussian of that scale is added to the whole
    vector: one release, whatever the number of layers.

    shares: s_r, of which the squares add up to 1; None for 1/sqrt(L) each.
    """

    clip: ByNorm
    shares: tuple[float, ...] | Tensor | None = field(default=None, compare=False)

    composition = "All layers are one vector of sensitivity sqrt(sum R_r^2), noised as one."

    @property
    def sensitivity(self) -> Bound:
        return self.clip.sensitivity

    def lengths(self, gradients: Gradients) -> Tensor:
        return gradients.layer_norms

    def bounds_of(self, norms: Tensor) -> Tensor:
        """R_r [L] of norms [..., L]."""
        shares = self.shares
        if shares is None:
            shares = (norms.shape[-1] ** -0.5,) * norms.shape[-1]
        if not isinstance(shares, Tensor):
            shares = norms.new_tensor(shares)
        return self.clip.bound * shares

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return self.clip.at(self.bounds_of(norms)).factors(norms, groups)

    def at(self, bounds: Tensor) -> "Layerwise":
        """The same function with other R_r [L]."""
        bounds = bounds.reshape(-1)
        whole = torch.linalg.vector_norm(bounds)
        return Layerwise(self.clip.at(whole), bounds / whole)

    def scaled(self, by: float) -> "Layerwise":
        return replace(self, clip=self.clip.scaled(by))

    def check_layers(self, names: Sequence[str]) -> None:
        if self.shares is not None and len(self.shares) != len(names):
            raise UserError(
                f"method.bound has {len(self.shares)} numbers and the model {len(names)} trained "
                f"layers ({', '.join(names)}): give one for each, or one for all together."
            )


def share_out(bounds: Sequence[float]) -> tuple[float, tuple[float, ...]]:
    """R = sqrt(sum_r R_r^2), and the shares R_r/R."""
    whole = math.hypot(*bounds)
    return whole, tuple(bound / whole for bound in bounds)
