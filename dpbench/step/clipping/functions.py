"""Clipping functions: from a gradient's norm and a bound to its factor."""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.step.clipping.clip import MAX_FACTOR, Bound, OneBound, Sensitivity, check_bound, ratio
from dpbench.system.validate import positive


@dataclass(frozen=True)
class ByNorm(OneBound):
    """Base of clips whose factor is at most bound/norm, so that the bound is the sensitivity.

    Norms and bound are broadcast, so that one bound per layer clips norms [B, L].
    """

    def bounds_of(self, norms: Tensor) -> Bound:
        """The bounds that these norms [B] are compared with."""
        return self.bound

    def at(self, bound: Bound) -> Self:
        """The same function with another bound."""
        return replace(self, bound=bound)

    def scaled(self, by: float) -> Self:
        return self.at(self.bound * by)


@dataclass(frozen=True)
class Abadi(ByNorm):
    """min(1, R/norm): larger gradients are scaled down to norm R (Abadi et al. 2016)."""

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return ratio(self.bound, norms, most=1)


@dataclass(frozen=True)
class Automatic(ByNorm):
    """R/(norm + constant): scales all gradients to a norm just below R (Bu et al. 2022, AUTO-S).

    The paper's constant is 0.01. Norms far below the constant keep their ratios.
    """

    constant: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("the constant of automatic clipping", self.constant)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return ratio(self.bound, norms + self.constant)


@dataclass(frozen=True)
class PerSampleAdaptive(ByNorm):
    """R/(norm + r/(norm + r)), r the regulariser (Xia et al. 2023, DP-PSAC, Algorithm 1).

    As the denominator is above the norm, the scaled norm is below R. For norms near 0 it is R norm,
    where that of `Automatic` is R norm/constant; the factor is largest at norm sqrt(r) - r, not 0.
    """

    regulariser: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("the regulariser of per-sample adaptive clipping", self.regulariser)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return ratio(self.bound, norms + self.regulariser / (norms + self.regulariser))


@dataclass(frozen=True)
class Tanh(ByNorm):
    """R tanh(norm/R)/norm, so that the scaled norm is R tanh(norm/R), below R: a smooth `Abadi`
    (Soleymani et al. 2025, SoftAdaClip)."""

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        scaled = ratio(self.bound * torch.tanh(norms / self.bound), norms)
        return scaled.where(norms > 0, 1).clamp(max=1)


@dataclass(frozen=True)
class Normalise(ByNorm):
    """R/norm: scales all non-zero gradients to norm R (Bu et al. 2022, AUTO-V).

    Those that would need a factor above `MAX_FACTOR` end below R.
    """

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return ratio(self.bound, norms).where(norms > 0, 0)


@dataclass(frozen=True)
class Global(ByNorm):
    """R/Z up to norm Z and 0 beyond: one factor for all gradients that are not dropped.

    Bu et al. 2021; Esipova et al. 2023, Algorithm 2 in black. With Z = R a gradient is kept
    unchanged or dropped. Scaling the bound scales Z too, which keeps R/Z.
    """

    strict_bound: Bound

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bound("the strict clipping bound Z", self.strict_bound)

    def at(self, bound: Bound) -> Self:
        return replace(self, bound=bound, strict_bound=self.strict_bound * (bound / self.bound))

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        scaled = (norms <= self.strict_bound).to(norms) * (self.bound / self.strict_bound)
        return scaled.clamp(max=MAX_FACTOR)


@dataclass(frozen=True)
class Unclipped(OneBound):
    """No clipping: every factor is 1, and the bound scales the noise, but bounds nothing."""

    bound: Bound = math.inf

    def __post_init__(self) -> None:
        """Infinite without noise."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(
            self.bound, "Nothing is clipped, so no noise is sure to hide one example."
        )

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return torch.ones_like(norms)
