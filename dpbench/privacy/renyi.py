"""Renyi divergences of the sampled Gaussian and their epsilon, as in dp_accounting to the bit.

dp_accounting takes a second to import, and adds up the series of Mironov, Talwar and Zhang 2019
(Section 3.3) term by term in Python, which takes most of a calibration's time. Here numpy computes
the terms; they are added in the same order.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, log_ndtr

MOST_TERMS = 1000
"""Of a fractional order, as in dp_accounting; where they do not suffice, its divergence is inf."""

BLOCK = 100
"""The number of terms of a fractional order that are computed at once."""


def smallest_epsilon(
    orders: Sequence[float], divergences: Sequence[float], delta: float
) -> tuple[float, float]:
    """The smallest epsilon, and its order: Canonne, Kamath and Steinke 2020, Proposition 12."""
    epsilons = [_epsilon(*pair, delta) for pair in zip(orders, divergences, strict=True)]
    best = int(np.argmin(epsilons))
    return max(0.0, epsilons[best]), orders[best]


def _epsilon(order: float, divergence: float, delta: float) -> float:
    if divergence < 0 or delta**2 + math.expm1(-divergence) > 0:
        return 0.0  # by the divergence of Kullback and Leibler: delta <= sqrt(1 - exp(-KL))
    if order <= 1.01:
        return math.inf  # the formula is not stable near 1
    return divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


@functools.lru_cache(maxsize=4096)
def sampled_gaussian(rate: float, sigma: float, orders: tuple[float, ...]) -> np.ndarray:
    """The divergences at `orders` of one release with 0 < rate <= 1 and sigma > 0; not to be
    modified.

    They take most of an accountant's time, and do not depend on the number of steps or delta.
    """
    with np.errstate(all="ignore"):  # terms beyond the last one needed may overflow
        if rate == 1:
            return np.array(orders) / (2 * sigma**2)
        return np.array([_log_moment(rate, sigma, order) / (order - 1) for order in orders])


def _log_moment(rate: float, sigma: float, order: float) -> float:
    if float(order).is_integer():
        return _integer(rate, sigma, int(order))
    return _fractional(rate, sigma, order)


def _integer(rate: float, sigma: float, order: int) -> float:
    i, factorials = np.arange(order + 1.0), _log_factorials(order)
    binomials = factorials[-1] - factorials - factorials[::-1]
    terms = binomials + i * math.log(rate) + (order - i) * math.log1p(-rate)
    return functools.reduce(_log_add, (terms + _exponent(i, sigma)).tolist(), -math.inf)


@functools.cache
def _log_factorials(most: int) -> np.ndarray:
    return gammaln(np.arange(most + 1) + 1.0)


def _fractional(rate: float, sigma: float, order: float) -> float:
    """The sums over both halves of the line, until both decrease and no longer matter."""
    left = right = last_left = last_right = -math.inf
    for start in range(0, MOST_TERMS, BLOCK):
        for a, b in zip(*_terms(rate, sigma, order, start), strict=True):
            left, right = _log_add(left, a), _log_add(right, b)
            total = _log_add(left, right)
            if a < last_left and b < last_right and max(a, b) < total - 30:
                return total
            last_left, last_right = a, b
    return math.inf


def _terms(rate: float, sigma: float, order: float, start: int) -> tuple[list, list]:
    """The next BLOCK terms from the left and from the right of where the densities cross."""
    i = np.arange(start, start + BLOCK, dtype=float)
    j = order - i
    binomials = gammaln(order + 1) - gammaln(i + 1) - gammaln(j + 1)
    crossing = sigma**2 * math.log(1 / rate - 1) + 0.5
    inside, outside = math.log(rate), math.log1p(-rate)
    left = binomials + i * inside + j * outside + _exponent(i, sigma)
    right = binomials + j * inside + i * outside + _exponent(j, sigma)
    left += _log_tail((i - crossing) / (math.sqrt(2) * sigma))
    right += _log_tail((crossing - j) / (math.sqrt(2) * sigma))
    return left.tolist(), right.tolist()


def _exponent(k: np.ndarray, sigma: float) -> np.ndarray:
    return (k * k - k) / (2 * sigma**2)


def _log_tail(x: np.ndarray) -> np.ndarray:
    """log(erfc(x) / 2)."""
    return math.log(0.5) + (math.log(2) + log_ndtr(-x * 2**0.5))


def _log_add(x: float, y: float) -> float:
    """log(exp(x) + exp(y))."""
    low, high = (y, x) if y < x else (x, y)
    return high if low == -math.inf else math.log1p(math.exp(low - high)) + high
