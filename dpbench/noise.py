"""Noise laws: what is added to a sum of stated sensitivity, and what the ledger is told of it."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dpbench.ledger import Exact, GaussianMechanism, Mechanism

PIECE = 2**16
"""Numbers that a CPU draws at once: what fits its cache saves the half of the time that fresh
memory would cost. It changes no draw."""


class Noise(Protocol):
    """A law of noise, scaled by a multiplier of the sensitivity."""

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


@dataclass(frozen=True)
class Gaussian:
    """Independent N(0, (multiplier * sensitivity)^2) per coordinate (Abadi et al. 2016)."""

    private: bool = True

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


@dataclass(frozen=True)
class NoNoise:
    """Nothing is added: the sum is released as it is, and no epsilon is finite."""

    private: bool = False

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
