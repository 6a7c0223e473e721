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
    largest: float = math.inf

    @property
    def rounding(self) -> float:
        """Eight times the largest relative error observed against mpmath."""
        return 1e-12 + 1e-13 / self.mu

    def at(self, epsilons: np.ndarray) -> np.ndarray:
        """Deltas at epsilons of at least 0."""
        a, b = epsilons / self.mu - self.mu / 2, epsilons / self.mu + self.mu / 2
        density = np.exp(-(a**2) / 2)  # times sqrt(2 pi), as is the inverse of Mills' ratio
        tail = np.where(a > 0, density * _mills(np.maximum(a, 0)), ndtr(-a))
        return np.where(
            a > 0, density * (_mills(np.maximum(a, 0)) - _mills(b)), tail - density * _mills(b)
        )


def _mills(x: np.ndarray) -> np.ndarray:
    """Phi(-x) sqrt(2 pi) exp(x^2/2) / sqrt(2 pi), for x >= 0."""
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
