"""What Poisson sampling makes of a privacy profile, for removing and for adding an example.

A profile is delta(epsilon) = sup E_Q[(r - e^epsilon)_+] over all neighbours, r = P/Q. Those here
are the same for adding and removing, and epsilon is at least 0: below, delta(-e) = 1 - exp(-e) +
exp(-e) delta'(e) with the profile delta' of the other direction.
"""

import math
from typing import Protocol

import numpy as np


class Symmetric(Protocol):
    """The privacy profile of one release without sampling, the same for adding and removing."""

    @property
    def largest(self) -> float:
        """The epsilon beyond which delta does not fall."""
        ...

    @property
    def rounding(self) -> float:
        """What rounding may cost of a delta, relatively."""
        ...

    def at(self, epsilons: np.ndarray) -> np.ndarray:
        """Deltas at epsilons of at least 0, upper bounds but for `rounding`."""
        ...


def removed(profile: Symmetric, rate: float, epsilons: np.ndarray) -> np.ndarray:
    """The deltas of (1 - q) Q + q P against Q: q delta(log(1 + (e^epsilon - 1)/q))."""
    if rate == 1:
        return profile.at(epsilons)
    near, far = np.minimum(epsilons, 1.0), np.maximum(epsilons, 1.0)
    # Neither form loses digits or overflows on its own side.
    asked = np.where(
        epsilons < 1,
        np.log1p(np.expm1(near) / rate),
        far - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-far)),
    )
    return rate * profile.at(asked)


def added(profile: Symmetric, rate: float, epsilons: np.ndarray) -> np.ndarray:
    """The deltas of Q against (1 - q) Q + q P: left delta(epsilon + log(q/left)), where left =
    1 - (1 - q) e^epsilon; 0 from epsilon = -log(1 - q) on."""
    if rate == 1:
        return profile.at(epsilons)
    left = -np.expm1(epsilons + math.log1p(-rate))
    reached = left > 0
    some = np.where(reached, left, 1.0)
    asked = np.maximum(epsilons + math.log(rate) - np.log(some), 0)
    return np.where(reached, left * profile.at(np.where(reached, asked, 0.0)), 0.0)
