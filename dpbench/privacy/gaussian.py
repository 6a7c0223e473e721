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
"""Places over which M is maximised at first, and lambdas over which the bound is minimised."""

MARGIN = 1e-6
"""The relative margin added to log M for the places in between."""

COVERED = 0.9 * FAR_SHARE
"""How much of d log M MARGIN may lack, else places are ten times as many. With m places far the
failure is at most (1 - FAR_SHARE) exp(lacking - m log M) + FAR_SHARE m/d of what it may be: convex
in m, and at most 1 for m = 0 and m = d."""


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
    square, lacking = _least_square(dimension, shift, failure, PLACES)
    if lacking > COVERED:
        square, _ = _least_square(dimension, shift, failure, 10 * PLACES)
    return min(math.sqrt(dimension) * shift, math.sqrt(square))


def _least_square(dimension: int, shift: float, failure: float, number: int) -> tuple[float, float]:
    """The smallest mu^2 over lambda, by that many places, and what log M over all coordinates may
    lack there."""
    far = -float(ndtri(FAR_SHARE * failure / (2 * dimension)))
    down, up = _losses(shift, np.linspace(-far - shift, far, number))
    widest = (down + up).max()
    # The moments are infinite from 2 lambda - 1/4 = (pi/width)^2 on.
    most = ((math.pi / widest) ** 2 + 0.25) / 2
    needed = -math.log((1 - FAR_SHARE) * failure)
    lambdas = [each for each in most * np.geomspace(1e-4, 0.999, LAMBDAS) if each > 0.25]
    squares = [(dimension * _log_moment(each, down, up) + needed) / each for each in lambdas]
    if not squares:
        return math.inf, 0.0
    square, best = min(zip(squares, lambdas, strict=True))
    return square, dimension * _lacking(best, down, up)


def _losses(shift: float, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """-log l and log u at places: the sum without the example, in standard deviations of noise."""
    up = log_ndtr(places + shift) - log_ndtr(places)
    return log_ndtr(-places) - log_ndtr(-places - shift), up


def _log_moment(lambda_: float, down: np.ndarray, up: np.ndarray) -> float:
    """The largest log E[exp(lambda exit)] of Brownian motion with drift 1/2 leaving (-down, up)."""
    return (1 + MARGIN) * math.log(_moments(lambda_, down, up).max())


def _lacking(lambda_: float, down: np.ndarray, up: np.ndarray) -> float:
    """How far `_log_moment` is below places in between: by the tops of parabolas through three."""
    moments = _moments(lambda_, down, up)
    slopes, bends = (moments[2:] - moments[:-2]) / 2, -np.diff(moments, 2)
    peaks = (bends > 0) & (2 * np.abs(slopes) <= bends)
    tops = moments[1:-1][peaks] + slopes[peaks] ** 2 / (2 * bends[peaks])
    largest = moments.max()
    return math.log(tops.max(initial=largest)) - (1 + MARGIN) * math.log(largest)


def _moments(lambda_: float, down: np.ndarray, up: np.ndarray) -> np.ndarray:
    """E[exp(lambda exit)] for lambda above 1/8 and below where it is infinite (Borodin and Salminen
    2002, 2.3.0.1)."""
    theta = math.sqrt(2 * lambda_ - 0.25)
    above, below = np.exp(up / 2) * np.sin(theta * down), np.exp(-down / 2) * np.sin(theta * up)
    return (above + below) / np.sin(theta * (down + up))
