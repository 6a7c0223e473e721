"""Updates: post-processing of the noisy mean before the optimiser."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.privacy.ledger import CoordinateMechanism, GaussianMechanism, Mechanism
from dpbench.step.clipping import Part
from dpbench.step.mechanism.gradient import ReleasedState


class Update(Part, ABC):
    """A function of the noisy means so far and the parameters alone, hence post-processing.

    The defaults are for an update that has no state and does not change the ledger.
    """

    excess: float = 1.0
    """The true sensitivity over the one that scales the noise: 1 unless a paper's noise is too
    small."""

    @abstractmethod
    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        """The gradient for the optimiser [D], from the noisy sum over the expected batch size [D],
        which may be overwritten, and the parameters theta [D]."""

    def advance(
        self, noisy: Tensor, deviation: float | Tensor, theta: Tensor, released: ReleasedState
    ) -> Self:
        """The update after seeing this step's noisy mean [D]; call the result.

        deviation: the scale of the noise in `noisy`, a scalar or [D]: the standard deviation of
        Gaussian noise. theta [D]: the parameters, to be copied if they are stored. released: before
        this step. All state is in tensor fields.
        """
        return self

    def releases(self, mechanism: Mechanism, coordinates: int | None) -> Mechanism:
        """The mechanism including this post-processing, given that of the noise.

        coordinates: the number of coordinates of the sum, if the clip bounds each of them.
        """
        return mechanism


@dataclass(frozen=True)
class Plain(Update):
    """The identity."""

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return noisy


@dataclass(frozen=True)
class Sign(Update):
    """The sign of each coordinate, -1 or 1 (Bernstein et al. 2018).

    Post-processing of any mechanism. For logistic noise, and for Gaussian noise with each
    coordinate bounded, the ledger records that only signs are released. zero: the value for a
    coordinate of exactly 0, which noise produces only by rounding; a third output value would not
    be covered by the accountant.
    """

    zero: int = 1

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return torch.where(noisy == 0, self.zero, noisy.sign()).to(noisy)

    def releases(self, mechanism: Mechanism, coordinates: int | None) -> Mechanism:
        if isinstance(mechanism, CoordinateMechanism) and mechanism.noise == "logistic":
            return replace(mechanism, signed=True)
        if isinstance(mechanism, GaussianMechanism) and coordinates and mechanism.bands == 1:
            multiplier = mechanism.noise_multiplier
            return CoordinateMechanism("gaussian", multiplier, coordinates, signed=True)
        return mechanism
