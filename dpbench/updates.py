"""The update seam: what becomes of the noisy mean before the optimiser gets it."""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from dpbench.data.users import Units
from dpbench.ledger import CoordinateMechanism, Mechanism


class Update(Protocol):
    """A function of what the noise gave and of the parameters, and of nothing else."""

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        """What the optimiser gets [D]; noisy [D]: the noisy sum over the expected batch size.

        theta [D]: the parameters. The noisy one may be overwritten.
        """
        ...

    def on(self, units: Units) -> "Update":
        """The update for so many units."""
        ...

    def releases(self, mechanism: Mechanism) -> Mechanism:
        """The mechanism that ends here, given the one of the noise."""
        ...


@dataclass(frozen=True)
class Plain:
    """The noisy gradient as it is."""

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return noisy

    def on(self, units: Units) -> "Plain":
        return self

    def releases(self, mechanism: Mechanism) -> Mechanism:
        return mechanism


@dataclass(frozen=True)
class Sign:
    """-1 or 1 for each coordinate (Bernstein et al. 2018), and nothing between.

    Post-processing of any mechanism; of logistic noise the ledger hears that only signs leave.
    zero: what a coordinate of exactly 0 becomes. Noise makes none but by rounding, where a third
    answer would be one that the account does not know.
    """

    zero: int = 1

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return torch.where(noisy == 0, self.zero, noisy.sign()).to(noisy)

    def on(self, units: Units) -> "Sign":
        return self

    def releases(self, mechanism: Mechanism) -> Mechanism:
        if isinstance(mechanism, CoordinateMechanism) and mechanism.noise == "logistic":
            return replace(mechanism, signed=True)
        return mechanism
