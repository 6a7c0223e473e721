"""Noise laws: what is added to a sum of stated sensitivity, and what the ledger is told of it."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dpbench.ledger import Exact, GaussianMechanism, Mechanism


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
        """total [D] plus one draw of noise; one call per logical batch."""
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
        draw = torch.randn(total.shape, dtype=total.dtype, device=total.device, generator=generator)
        # In place: for large models, fresh memory costs more than the arithmetic.
        return draw.mul_(multiplier * sensitivity).add_(total)

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
