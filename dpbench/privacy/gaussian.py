"""The privacy profile of the Gaussian mechanism, with full relative accuracy for any delta."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, ndtr


@dataclass(frozen=True)
class GaussianProfile:
    """delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) (Balle and Wang
    2018, Theorem 8); mu: 1/multiplier."""

    mu: float

    largest = math.inf

    @property
    def rounding(self) -> float:
        """Eight times the largest relative error observed against mpmath."""
        return 1e-12 + 1e-13 / self.mu

    def at(self, epsilons: np.ndarray) -> np.ndarray:
        """Deltas at epsilons of at least 0."""
        a, b = epsilons / self.mu - self.mu / 2, epsilons / self.mu + self.mu / 2
        decay = np.exp(-(a**2) / 2)  # of both terms, since e^epsilon exp(-b^2/2) is the same
        other = _scaled_tail(b)
        return np.where(
            a > 0, decay * (_scaled_tail(np.maximum(a, 0)) - other), ndtr(-a) - decay * other
        )


def _scaled_tail(x: np.ndarray) -> np.ndarray:
    """Phi(-x) exp(x^2/2), for x >= 0."""
    return erfcx(x / math.sqrt(2)) / 2


def exact_epsilon(mu: float, delta: float) -> float:
    """The epsilon of the Gaussian mechanism with multiplier 1/mu, rounded up by 1e-12."""
    profile = GaussianProfile(mu)

    def exceeds(epsilon: float) -> bool:
        return float(profile.at(np.array([epsilon]))[0]) * (1 + profile.rounding) > delta

    if not exceeds(0.0):
        return 0.0
    # Phi(-a) <= exp(-a^2/2)/2
    low, high = 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high * (1 + 1e-12)
