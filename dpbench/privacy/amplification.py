"""Amplification of a privacy profile by Poisson sampling, for removing and adding an example.

A profile is delta(epsilon) = sup E_Q[(r - e^epsilon)_+] over all neighbours, r = P/Q, at epsilon >=
0: below, delta(-e) = 1 - exp(-e) + exp(-e) delta'(e) with delta' of the other direction.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class SymmetricProfile(Protocol):
    """The privacy profile of one release without sampling, the same for adding and removing."""

    @property
    def largest(self) -> float:
        """The epsilon beyond which delta stays constant."""

    @property
    def rounding(self) -> float:
        """A bound of the relative round-off in a delta."""

    def at(self, epsilons: np.ndarray) -> np.ndarray:
        """Deltas at epsilons of at least 0, upper bounds up to `rounding`."""


class DirectedProfile(ABC):
    """The privacy profile of a step or an epoch, sampling included; other members as for
    SymmetricProfile. No protocol, as each of many calls asks whether a profile is one."""

    @property
    @abstractmethod
    def largest(self) -> float: ...

    @property
    @abstractmethod
    def rounding(self) -> float: ...

    @abstractmethod
    def removal_deltas(self, epsilons: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def addition_deltas(self, epsilons: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class TabulatedProfile:
    """Deltas [N] at epsilons [N] from 0 upwards, linear in exp(epsilon) between and constant
    beyond."""

    epsilons: np.ndarray
    deltas: np.ndarray

    @property
    def largest(self) -> float:
        return float(self.epsilons[-1])

    def at(self, epsilons: np.ndarray) -> np.ndarray:
        """Deltas at epsilons of at least 0, upper bounds."""
        i = np.clip(np.searchsorted(self.epsilons, epsilons, "right"), 1, len(self.epsilons) - 1)
        left, right = self.epsilons[i - 1], self.epsilons[i]
        over = np.minimum(epsilons, right)
        share = np.expm1(over - left) / np.expm1(right - left)
        return self.deltas[i - 1] + share * (self.deltas[i] - self.deltas[i - 1])


@dataclass(frozen=True)
class TruncatedProfile(DirectedProfile):
    """A Poisson sample that is cut with probability `cut`; an example may then replace another.

    replaced: the profile with twice the sensitivity. See `dpbench.privacy.entries.cut_probability`.
    """

    whole: SymmetricProfile
    replaced: SymmetricProfile
    rate: float
    cut: float

    @property
    def largest(self) -> float:
        return max(self.whole.largest, self.replaced.largest)

    @property
    def rounding(self) -> float:
        return max(self.whole.rounding, self.replaced.rounding)

    def removal_deltas(self, epsilons: np.ndarray) -> np.ndarray:
        return self._mean(removal_deltas, epsilons)

    def addition_deltas(self, epsilons: np.ndarray) -> np.ndarray:
        return self._mean(addition_deltas, epsilons)

    def _mean(self, side: Callable[..., np.ndarray], epsilons: np.ndarray) -> np.ndarray:
        whole, replaced = (side(p, self.rate, epsilons) for p in (self.whole, self.replaced))
        return (1 - self.cut) * whole + self.cut * replaced


Profile = SymmetricProfile | DirectedProfile


def removal_deltas(profile: Profile, rate: float, epsilons: np.ndarray) -> np.ndarray:
    """The deltas of (1 - q) Q + q P against Q: q delta(log(1 + (e^epsilon - 1)/q))."""
    if isinstance(profile, DirectedProfile):
        return profile.removal_deltas(epsilons)
    if rate == 1:
        return profile.at(epsilons)
    near, far = np.minimum(epsilons, 1.0), np.maximum(epsilons, 1.0)
    # Two forms of the same expression, each accurate and without overflow on its side of 1.
    unsampled = np.where(
        epsilons < 1,
        np.log1p(np.expm1(near) / rate),
        far - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-far)),
    )
    return rate * profile.at(unsampled)


def addition_deltas(profile: Profile, rate: float, epsilons: np.ndarray) -> np.ndarray:
    """The deltas of Q against (1 - q) Q + q P: c delta(epsilon + log(q/c)), where c =
    1 - (1 - q) e^epsilon; 0 from epsilon = -log(1 - q) on."""
    if isinstance(profile, DirectedProfile):
        return profile.addition_deltas(epsilons)
    if rate == 1:
        return profile.at(epsilons)
    c = -np.expm1(np.minimum(epsilons + math.log1p(-rate), 0))
    positive = c > 0
    unsampled = np.maximum(epsilons + math.log(rate) - np.log(np.where(positive, c, 1.0)), 0)
    return np.where(positive, c * profile.at(np.where(positive, unsampled, 0.0)), 0.0)
