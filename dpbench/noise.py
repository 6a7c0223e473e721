"""Noise laws: what is added to a sum of stated sensitivity, and what the ledger is told of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from dpbench.errors import UserError
from dpbench.ledger import CoordinateMechanism, Exact, GaussianMechanism, Mechanism

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


def _added(
    total: Tensor,
    scale: float | Tensor,
    generator: torch.Generator,
    quantile: Callable[[Tensor], Tensor],
) -> Tensor:
    """The sum [D], in place, with scale times an independent draw of a law for each coordinate."""
    for part in total.split(PIECE) if total.is_cpu else (total,):
        part.add_(quantile(uniforms(part, generator)).mul_(scale).to(part.dtype))
    return total


def _logistic(u: Tensor) -> Tensor:
    return u.log() - (-u).log1p()


def _laplace(u: Tensor) -> Tensor:
    v = 2 * u - 1
    return v.sign() * (-v.abs()).log1p().neg_()


def _drawn(size: int | None) -> int:
    if size is None:
        raise UserError("noise per coordinate does not know how many there are: call for_size.")
    return size


@dataclass(frozen=True)
class Logistic:
    """Independent Logistic(0, multiplier * sensitivity) per coordinate, by inverse transform.

    Its standard deviation is pi/sqrt(3) times that scale. Its sign is the exponential mechanism
    over signs r with utility r_i g_i (the note, section 1). size: coordinates of the sum, each of
    which one example moves by at most sensitivity/sqrt(size).
    """

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
        return _added(total, multiplier * sensitivity, generator, _logistic)

    def mechanism(self, multiplier: float) -> Mechanism:
        return CoordinateMechanism("logistic", multiplier, _drawn(self.size))

    def for_size(self, size: int) -> "Logistic":
        return replace(self, size=size)


@dataclass(frozen=True)
class Laplace:
    """Independent Laplace(0, multiplier * sensitivity) per coordinate, by inverse transform.

    Its standard deviation is sqrt(2) times that scale. size: as for Logistic.
    """

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
        return _added(total, multiplier * sensitivity, generator, _laplace)

    def mechanism(self, multiplier: float) -> Mechanism:
        return CoordinateMechanism("laplace", multiplier, _drawn(self.size))

    def for_size(self, size: int) -> "Laplace":
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
