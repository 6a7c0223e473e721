"""Renyi divergences of the sampled Gaussian and their epsilon, as in dp_accounting to the bit.

That takes a second to import, and most of a calibration's time for sums in Python.
The series of Mironov, Talwar and Zhang 2019 (Section 3.3) is added in the same order by numpy.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln, log_ndtr

MAX_TERMS = 1000
"""The largest number of terms of a fractional order, as in dp_accounting; where they do not
suffice, its divergence is inf."""

BLOCK = 100
"""The number of terms of fractional orders that are computed at once."""

ROUNDING = 1e-15
"""The round-off in the divergence of a step, over a + 1/(a - 1) for order a: forty times the
largest observed against mpmath at whole orders."""


def smallest_epsilon(
    orders: Sequence[float], divergences: Sequence[float], delta: float, steps: int = 0
) -> tuple[float, float]:
    """The smallest epsilon, and its order: Canonne, Kamath and Steinke 2020, Proposition 12.

    steps: how many have divergences whose round-off is not to pass for an epsilon of 0.
    """
    rounding = ROUNDING * steps
    epsilons = [_epsilon(*pair, delta, rounding) for pair in zip(orders, divergences, strict=True)]
    best = int(np.argmin(epsilons))
    return max(epsilons[best], 0.0), orders[best]  # in this order NaN stays NaN, which is refused


def _epsilon(order: float, divergence: float, delta: float, rounding: float) -> float:
    largest = max(divergence, 0.0) + rounding * (order + 1 / (order - 1))
    if delta**2 + math.expm1(-largest) > 0:
        return 0.0  # by the Kullback-Leibler divergence: delta <= sqrt(1 - exp(-KL))
    if order <= 1.01:
        return math.inf  # the formula is not stable near 1
    return divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


@functools.lru_cache(maxsize=4096)
def sampled_gaussian(rate: float, sigma: float, orders: tuple[float, ...]) -> np.ndarray:
    """The divergences at `orders` of one release with 0 < rate <= 1 and sigma > 0; not to be
    modified."""
    with np.errstate(all="ignore"):  # terms beyond the last one needed may overflow
        if rate == 1:
            return np.array(orders) / (2 * sigma**2)
        moments = np.empty(len(orders))
        whole = np.array([float(order).is_integer() for order in orders])
        moments[~whole] = _fractional(rate, sigma, np.array(orders)[~whole])
        moments[whole] = [_integer(rate, sigma, int(order)) for order in np.array(orders)[whole]]
        return moments / (np.array(orders) - 1)


def _integer(rate: float, sigma: float, order: int) -> float:
    i, factorials = np.arange(order + 1.0), _log_factorials(order)
    binomials = factorials[-1] - factorials - factorials[::-1]
    terms = binomials + i * math.log(rate) + (order - i) * math.log1p(-rate)
    return float(np.logaddexp.reduce(terms + _exponent(i, sigma)))


@functools.cache
def _log_factorials(most: int) -> np.ndarray:
    return gammaln(np.arange(most + 1) + 1.0)


def _fractional(rate: float, sigma: float, orders: np.ndarray) -> np.ndarray:
    """The sums over both halves of the line [m], until the terms decrease and no longer matter."""
    sums, unfinished = np.full(len(orders), math.inf), np.arange(len(orders))
    before = np.full((4, len(orders), 1), -math.inf)  # the last two sums, and their last terms
    for start in range(0, MAX_TERMS, BLOCK):
        terms = np.array(_terms(rate, sigma, orders[unfinished, None], start))
        halves = np.logaddexp.accumulate(np.concatenate([before[:2], terms], 2), axis=2)[..., 1:]
        total = np.logaddexp(*halves)
        falling = (terms < np.concatenate([before[2:], terms[..., :-1]], 2)).all(0)
        enough = falling & (terms.max(0) < total - 30)
        ended = enough.any(1)
        sums[unfinished[ended]] = total[ended, enough[ended].argmax(1)]
        unfinished, before = unfinished[~ended], np.concatenate([halves, terms])[:, ~ended, -1:]
        if not len(unfinished):
            break
    return sums


def _terms(
    rate: float, sigma: float, orders: np.ndarray, start: int
) -> tuple[np.ndarray, np.ndarray]:
    """The next terms [m, BLOCK] from the left and from the right of where the densities cross."""
    i = np.arange(start, start + BLOCK, dtype=float)
    j = orders - i
    binomials = gammaln(orders + 1) - gammaln(i + 1) - gammaln(j + 1)
    crossing = sigma**2 * math.log(1 / rate - 1) + 0.5
    inside, outside = math.log(rate), math.log1p(-rate)
    left = binomials + i * inside + j * outside + _exponent(i, sigma)
    right = binomials + j * inside + i * outside + _exponent(j, sigma)
    left += _log_tail((i - crossing) / (math.sqrt(2) * sigma))
    right += _log_tail((crossing - j) / (math.sqrt(2) * sigma))
    return left, right


def _exponent(k: np.ndarray, sigma: float) -> np.ndarray:
    return (k * k - k) / (2 * sigma**2)


def _log_tail(x: np.ndarray) -> np.ndarray:
    return math.log(0.5) + (math.log(2) + log_ndtr(-x * 2**0.5))
