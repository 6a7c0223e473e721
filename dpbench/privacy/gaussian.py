"""The privacy profile of the Gaussian mechanism, with full relative accuracy for any delta; and its
effective mu with only the sign of each coordinate released, see docs/privacy/accounting.md.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

FAR_SHARE = 1e-3
"""The share of the failure probability that covers far places."""

PLACES, LAMBDAS = 4001, 80
"""Places over which M is maximised, and lambdas over which the bound is minimised."""

MARGIN = 1e-6
"""The relative margin added to log M for the places in between."""


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


@functools.lru_cache(maxsize=1024)
def sign_mu(dimension: int, shift: float, failure: float) -> float:
    """The mu of a Gaussian mechanism that dominates the signs, up to a delta of `failure`.

    shift: Delta. Never above the mu of the sums, sqrt(dimension) * shift, which needs no failure.
    """
    far = -float(ndtri(FAR_SHARE * failure / (2 * dimension)))
    down, up = _losses(shift, np.linspace(-far - shift, far, PLACES))
    widest = (down + up).max()
    # The moments are infinite from 2 lambda - 1/4 = (pi/width)^2 on.
    most = ((math.pi / widest) ** 2 + 0.25) / 2
    needed = -math.log((1 - FAR_SHARE) * failure)
    squares = [
        (dimension * _log_moment(lambda_, down, up) + needed) / lambda_
        for lambda_ in most * np.geomspace(1e-4, 0.999, LAMBDAS)
        if lambda_ > 0.25
    ]
    return min([math.sqrt(dimension) * shift, *map(math.sqrt, squares)])


def _losses(shift: float, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """-log l and log u at places: the sum without the example, in standard deviations of noise."""
    up = log_ndtr(places + shift) - log_ndtr(places)
    return log_ndtr(-places) - log_ndtr(-places - shift), up


def _log_moment(lambda_: float, down: np.ndarray, up: np.ndarray) -> float:
    """The largest log E[exp(lambda exit)] of Brownian motion with drift 1/2 leaving (-down, up).

    For lambda above 1/8 and below where the moment is infinite (Borodin and Salminen 2002,
    2.3.0.1).
    """
    theta = math.sqrt(2 * lambda_ - 0.25)
    above, below = np.exp(up / 2) * np.sin(theta * down), np.exp(-down / 2) * np.sin(theta * up)
    return (1 + MARGIN) * math.log(((above + below) / np.sin(theta * (down + up))).max())
