"""Updates: post-processing of the noisy mean before the optimiser."""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from dpbench.data.derive.users import Units
from dpbench.privacy.ledger import CoordinateMechanism, GaussianMechanism, Mechanism


class Update(Protocol):
    """A function of the noisy mean and the parameters alone, hence post-processing."""

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        """What the optimiser gets [D]; noisy [D]: the noisy sum over the expected batch size.

        theta [D]: the parameters. The noisy one may be overwritten.
        """
        ...

    @property
    def excess(self) -> float:
        """How many times as far as the noise is scaled for one unit moves the sum; 1 but where a
        paper's noise is too small."""
        ...

    def on(self, units: Units) -> "Update":
        """The update for a data set of these units."""
        ...

    def releases(self, mechanism: Mechanism, coordinates: int | None) -> Mechanism:
        """The mechanism that ends here, given the one of the noise.

        coordinates: of the sum, where the clip bounds each of them.
        """
        ...


@dataclass(frozen=True)
class Plain:
    """The identity."""

    excess = 1.0

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return noisy

    def on(self, units: Units) -> "Plain":
        return self

    def releases(self, mechanism: Mechanism, coordinates: int | None) -> Mechanism:
        return mechanism


@dataclass(frozen=True)
class Sign:
    """-1 or 1 for each coordinate (Bernstein et al. 2018), and nothing between.

    Post-processing of any mechanism; of logistic noise, and of Gaussian noise where each coordinate
    is bounded, the ledger hears that only signs leave.
    zero: the value for a coordinate of exactly 0, which noise produces only by rounding. A third
    output value would not be covered by the account.
    """

    zero: int = 1
    excess = 1.0

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return torch.where(noisy == 0, self.zero, noisy.sign()).to(noisy)

    def on(self, units: Units) -> "Sign":
        return self

    def releases(self, mechanism: Mechanism, coordinates: int | None) -> Mechanism:
        if isinstance(mechanism, CoordinateMechanism) and mechanism.noise == "logistic":
            return replace(mechanism, signed=True)
        if isinstance(mechanism, GaussianMechanism) and coordinates:
            multiplier = mechanism.noise_multiplier
            return CoordinateMechanism("gaussian", multiplier, coordinates, signed=True)
        return mechanism
