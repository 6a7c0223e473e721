"""Noise laws: what is added to a sum of stated sensitivity, and what the ledger is told of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from dpbench.errors import UserError
from dpbench.ledger import CoordinateLaw, CoordinateMechanism, Exact, GaussianMechanism, Mechanism

PIECE = 2**16
"""Numbers that a CPU draws at once: what fits its cache saves the half of the time that fresh
memory would cost. It changes no draw."""


class Noise(Protocol):
    """A law of noise, scaled by a multiplier of the sensitivity."""

    @property
    def per_coordinate(self) -> bool:
        """Whether it hides one example only if every coordinate has the same bound."""
        ...

    @property
    def private(self) -> bool:
        """Whether anything is added."""
        ...

    def add(
        self,
        total: Tensor,
        sensitivity: float | Tensor,
        multiplier: float,
        generator: torch.Generator,
    ) -> Tensor:
        """total [D], which may be written over, plus one draw; one call per logical batch."""
        ...

    def mechanism(self, multiplier: float) -> Mechanism:
        """What one call releases."""
        ...

    def for_size(self, size: int) -> "Noise":
        """The noise for sums of so many coordinates."""
        ...


@dataclass(frozen=True)
class Gaussian:
    """Independent N(0, (multiplier * sensitivity)^2) per coordinate (Abadi et al. 2016)."""

    private: bool = True
    per_coordinate = False

    def add(
        self,
        total: Tensor,
        sensitivity: float | Tensor,
        multiplier: float,
        generator: torch.Generator,
    ) -> Tensor:
        scale = multiplier * sensitivity
        for part in total.split(PIECE) if total.is_cpu else (total,):
            draw = torch.randn(
                part.shape, dtype=part.dtype, device=part.device, generator=generator
            )
            part.add_(draw.mul_(scale))
        return total

    def mechanism(self, multiplier: float) -> Mechanism:
        return GaussianMechanism(multiplier)

    def for_size(self, size: int) -> "Gaussian":
        return self


def uniforms(part: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers between 0 and 1 and never either, in float64: in float32 one in 2^24 would be 0."""
    draw = torch.rand(part.shape, dtype=torch.float64, device=part.device, generator=generator)
    return draw.clamp_(min=2**-54)


def _logistic(u: Tensor) -> Tensor:
    return u.log() - (-u).log1p()


def _laplace(u: Tensor) -> Tensor:
    v = 2 * u - 1
    return v.sign() * (-v.abs()).log1p().neg_()


QUANTILES: dict[CoordinateLaw, Callable[[Tensor], Tensor]] = {
    "logistic": _logistic,
    "laplace": _laplace,
}
"""By law: where a share u of it is below. Standard deviations are pi/sqrt(3) and sqrt(2)."""


@dataclass(frozen=True)
class PerCoordinate:
    """Independent draws of a law for each coordinate, times multiplier * sensitivity.

    By inverse transform. law: of QUANTILES; the sign of logistic noise is the exponential mechanism
    over signs r with utility r_i g_i (the note, section 1). size: coordinates of the sum, each of
    which one example moves by at most sensitivity/sqrt(size).
    """

    law: CoordinateLaw
    size: int | None = None
    private: bool = True
    per_coordinate = True

    def add(
        self,
        total: Tensor,
        sensitivity: float | Tensor,
        multiplier: float,
        generator: torch.Generator,
    ) -> Tensor:
        scale, quantile = multiplier * sensitivity, QUANTILES[self.law]
        for part in total.split(PIECE) if total.is_cpu else (total,):
            part.add_(quantile(uniforms(part, generator)).mul_(scale).to(part.dtype))
        return total

    def mechanism(self, multiplier: float) -> Mechanism:
        if self.size is None:
            raise UserError("noise per coordinate does not know how many there are: call for_size.")
        return CoordinateMechanism(self.law, multiplier, self.size)

    def for_size(self, size: int) -> "PerCoordinate":
        return replace(self, size=size)


@dataclass(frozen=True)
class NoNoise:
    """Nothing is added: the sum is released as it is, and no epsilon is finite."""

    private: bool = False
    per_coordinate = False

    def add(
        self,
        total: Tensor,
        sensitivity: float | Tensor,
        multiplier: float,
        generator: torch.Generator,
    ) -> Tensor:
        return total

    def mechanism(self, multiplier: float) -> Mechanism:
        return Exact()

    def for_size(self, size: int) -> "NoNoise":
        return self
