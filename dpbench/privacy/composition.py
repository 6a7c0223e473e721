"""Sums of privacy losses: upper bounds of delta for many steps, for any delta, however small.

A step is a measure on a grid of losses that dominates its privacy profile, and the loss of many
steps a convolution, by Fourier transform. Masses are first tilted to m_j exp(t x_j)/M(t), so that
round-off does not swamp a small delta; what remains of it is bounded and added
(docs/privacy/accounting.md).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import fft
from scipy.optimize import minimize_scalar

PRECISE, HALVINGS = 1e-9, 6
"""The relative precision of an epsilon, and the number of bisections evaluated at once."""

MIN_LOG_WEIGHT = -700.0
"""The smallest logarithm of a weight, relative to the largest one."""

LOG_OF_ZERO = -750.0
"""A logarithm of which exp is 0."""

UNIT = 2.0**-53
"""The unit round-off of float64."""

TRUNCATED_MASS = 1e-15
"""The mass of a tilted sum that may lie outside the grid; it is added to delta."""

PER_STAGE = 16
"""Unit round-offs per stage of a transform of length 2^n, which has at most n stages: each sums as
many products as the radix, at most 8, with inexact factors (Higham 2002, Section 24.1)."""


@dataclass(frozen=True, eq=False)
class Losses:
    """Masses under P [N] at the losses (start + i) * interval, and the mass of an infinite loss."""

    start: int
    masses: np.ndarray
    infinite: float

    @cached_property
    def logs(self) -> np.ndarray:
        return np.log(np.maximum(self.masses, 1e-320))

    @cached_property
    def indices(self) -> np.ndarray:
        return self.start + np.arange(len(self.masses))

    def tilted(self, tilt: float) -> tuple[float, np.ndarray]:
        """log M, and the masses times exp(tilt * index)/M, which sum to 1."""
        exponents = self.logs + tilt * self.indices
        most = exponents.max()
        # A subnormal exp takes 25 times as long, and adds nothing to the sum.
        weights = np.exp(np.maximum(exponents - most, MIN_LOG_WEIGHT))
        total = weights.sum()
        return float(most + math.log(total)), weights / total


def connect_dots(
    deltas: Callable[[np.ndarray], np.ndarray],
    reverse: Callable[[np.ndarray], np.ndarray],
    interval: float,
    low: int,
    high: int,
    rounding: float,
) -> Losses:
    """The losses whose profile interpolates another one linearly in e^epsilon: never below it.

    Doroshenko et al. 2022, Algorithm 1, at epsilon = -low, ..., high intervals. deltas: the profile
    at epsilons of at least 0. reverse: the profile of the other direction, which gives
    E_Q[(e^epsilon - r)_+] below 0, so that the relative error of masses is small on both sides.
    """
    indices = np.arange(-low, high + 1)
    sizes = np.abs(indices) * interval
    values = np.empty(len(sizes))
    values[:low] = np.exp(-sizes[:low]) * reverse(sizes[:low])
    values[low:] = deltas(sizes[low:])
    # A mass is a difference of differences over the interval: the sum over all of them is as exact.
    values *= 1 + rounding + 8 * UNIT * min(len(indices), 1 / interval)
    decreases = np.concatenate([[0.0], values[:-1] - values[1:], [0.0]])
    masses = (math.exp(interval) * decreases[:-1] - decreases[1:]) / math.expm1(interval)
    masses[low] += 1
    return Losses(-low, np.maximum(masses, 0), float(values[-1]))


class LossSum:
    """The sum of the losses of all steps; parts: (losses of a step, number of steps), one grid."""

    def __init__(self, parts: Sequence[tuple[Losses, int]], interval: float):
        self.parts, self.interval = parts, interval
        self.times = sum(times for _, times in parts)
        # The probability of an infinite loss in any step.
        self.infinite = -math.expm1(
            sum(times * math.log1p(-min(losses.infinite, 1 - UNIT)) for losses, times in parts)
        )

    def log_moment(self, tilt: float) -> float:
        """log E_P[exp(tilt * index)] of the sum."""
        return sum(times * losses.tilted(tilt)[0] for losses, times in self.parts)

    def best_tilt(self, delta: float) -> float:
        """The tilt per index that minimises `bound`."""
        return self._tilt(lambda tilt: self.bound(tilt, self.log_moment(tilt), delta))

    def _tilt(self, bound: Callable[[float], float]) -> float:
        ends = math.log(1e-6 * self.interval), math.log(min(1e5 * self.interval, 50.0))
        minimum = minimize_scalar(
            lambda log: bound(math.exp(log)), bounds=ends, method="bounded", options={"xatol": 1e-2}
        )
        return math.exp(minimum.x)

    def bound(self, tilt: float, log_moment: float, delta: float) -> float:
        """The index of an epsilon that holds at delta, by (1 - e^-y)_+ <= t^t/(1 + t)^(1 + t)
        exp(t y): sharper than Chernoff's bound, as losses just above epsilon count little (Canonne
        et al. 2020, Prop. 12)."""
        t = tilt / self.interval
        log_factor = t * math.log(t) - (1 + t) * math.log1p(t)
        return (log_moment - math.log(delta) + log_factor) / tilt

    def tilt_to(self, epsilon: float) -> float:
        """The tilt per index that minimises the Chernoff bound of delta at an epsilon."""
        index = epsilon / self.interval
        return self._tilt(lambda tilt: self.log_moment(tilt) - tilt * index)

    def spread(self, tilt: float) -> float:
        """The standard deviation of the tilted sum, in intervals."""
        variance = 0.0
        for losses, times in self.parts:
            _, weights = losses.tilted(tilt)
            mean = weights @ losses.indices
            variance += times * (weights @ (losses.indices - mean) ** 2)
        return math.sqrt(variance)

    def ends(self, tilt: float) -> tuple[int, int]:
        """Indices beyond which the mass of the tilted sum is at most TRUNCATED_MASS, by Chernoff's
        bound."""
        usual = math.sqrt(2 * math.log(2 / TRUNCATED_MASS)) / max(self.spread(tilt), 8.0)
        start = self.log_moment(tilt)

        def end(side: int) -> float:
            tried = usual * np.array([0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0, 1.5])
            logs = np.array([self.log_moment(tilt + side * u) for u in tried])
            return float(((logs - start + math.log(2 / TRUNCATED_MASS)) / tried).min())

        return math.floor(-end(-1)), math.ceil(end(1))

    def tilted(self, tilt: float) -> "TiltedSum":
        """The masses of the tilted sum."""
        low, high = self.ends(tilt)
        longest = max(len(losses.masses) for losses, _ in self.parts)
        size = 1 << (max(high - low + 1, longest) - 1).bit_length()
        log_moment, start, transforms = 0.0, 0, []
        for losses, times in self.parts:
            log, weights = losses.tilted(tilt)
            log_moment, start = log_moment + times * log, start + times * losses.start
            transforms.append((fft.rfft(weights, size), times))
        powers = _product_of_powers(transforms)
        # The transform is as long as the sum is wide: mass outside wraps around.
        masses = np.roll(fft.irfft(powers, size), -((low - start) % size))[: high - low + 1]
        mean = (2 * np.abs(powers).sum() - abs(powers[0]) - abs(powers[-1])) / size
        error = (self.times + 1) * UNIT * (PER_STAGE * math.log2(size) + 16) * float(mean)
        return TiltedSum(tilt, log_moment, low, masses, error)

    def deltas(self, epsilons: np.ndarray, tilted: "TiltedSum") -> np.ndarray:
        """Upper bounds of delta at epsilons of at least 0."""
        rounding = UNIT * (32 * self.times + 4 * len(tilted.masses))
        return self.infinite + (1 + rounding) * tilted.deltas(
            epsilons / self.interval, self.interval
        )

    def epsilon(self, delta: float, least: float = 0.0) -> float:
        """The smallest epsilon from `least` on a grid that holds at delta, refined; infinity if
        none holds."""
        if least == math.inf:
            return least
        tilted = self.tilted(self.best_tilt(delta))
        if least and self.deltas(np.array([least]), tilted)[0] <= delta:
            return least
        last = self.bound(tilted.tilt, tilted.log_moment, delta) * self.interval
        width = 60 / (tilted.tilt / self.interval + 1)
        points = np.linspace(max(0.0, last - width), max(0.0, last * (1 + 1e-9)), 2001)
        enough = self.deltas(points, tilted) <= delta
        if not enough.any():
            return math.inf
        first = int(np.argmax(enough))
        return self._bisect(points[max(first - 1, 0)], points[first], delta, tilted)

    def _bisect(self, low: float, high: float, delta: float, tilted: "TiltedSum") -> float:
        """Bisects several times at once: one pass over all masses bounds delta at many points."""
        while high - low > PRECISE * high:
            points = _halved(low, high)
            enough = self.deltas(points, tilted) <= delta
            first, last = 0, len(points) - 1
            while last - first > 1 and points[last] - points[first] > PRECISE * points[last]:
                middle = (first + last) // 2
                first, last = (first, middle) if enough[middle] else (middle, last)
            low, high = points[first], points[last]
        return float(high)


def _product_of_powers(factors: Sequence[tuple[np.ndarray, int]]) -> np.ndarray:
    """The product of powers of factors [N] complex, each given with its exponent."""
    powers = np.zeros(len(factors[0][0]), complex)
    sizes = sum((times * _log_size(factor) for factor, times in factors), np.zeros(len(powers)))
    # After many steps nearly all are 0, and a complex logarithm takes ten times as long.
    (kept,) = np.nonzero(sizes > LOG_OF_ZERO)
    logs = np.zeros(len(kept), complex)
    for factor, times in factors:
        logs += times * np.log(np.where(factor[kept] == 0, 1e-300, factor[kept]))
    powers[kept] = np.exp(logs)
    return powers


def _log_size(z: np.ndarray) -> np.ndarray:
    """log |z|; too large by less than 1 below 1e-150."""
    return np.log(np.maximum(z.real**2 + z.imag**2, 1e-300)) / 2


def _halved(low: float, high: float) -> np.ndarray:
    """The ends, and all points that HALVINGS bisections between them may visit."""
    points = np.array([low, high])
    for _ in range(HALVINGS):
        middles = (points[:-1] + points[1:]) / 2
        points = np.insert(points, np.arange(1, len(points)), middles)
    return points


@dataclass(frozen=True, eq=False)
class TiltedSum:
    """The masses m_j exp(tilt * j)/M of a sum at indices j from `start`, each within `error`."""

    tilt: float
    log_moment: float
    start: int
    masses: np.ndarray
    error: float

    def deltas(self, at: np.ndarray, interval: float) -> np.ndarray:
        """E[(1 - exp(epsilon - loss))_+] at epsilon = at * interval, plus a bound of all errors."""
        origin, indices = float(at.max()), self.start + np.arange(len(self.masses))
        near = -600 / (self.tilt + interval)  # exp overflows below
        past = indices - origin
        number = int((past > near).sum())
        past = past[past > max(near, at.min() - origin)]  # losses below all epsilons cost nothing
        upper = self.masses[len(self.masses) - len(past) :] * np.exp(-self.tilt * past)
        above, scaled = (_suffix_sums(part) for part in (upper, upper * np.exp(-interval * past)))
        first = np.searchsorted(past, at - origin, "right")
        inside = above[first] - np.exp((at - origin) * interval) * scaled[first]
        summation = 8 * UNIT * number * np.abs(above[first])
        transform = self.error * min(_weights(self.tilt, interval), number) + TRUNCATED_MASS
        deltas = _exp(self.log_moment - self.tilt * origin) * (np.maximum(inside, 0) + summation)
        deltas += transform * _exp(self.log_moment - self.tilt * at)
        return np.where(at - origin > near, np.minimum(deltas, 1), 1.0)


def _suffix_sums(values: np.ndarray) -> np.ndarray:
    return np.append(np.cumsum(values[::-1])[::-1], 0)


def _weights(tilt: float, interval: float) -> float:
    """An upper bound of the sum of exp(-tilt y)(1 - exp(-interval y)) over y > 0 spaced 1 apart:
    the sum over integers plus the largest term."""
    return 1 / math.expm1(tilt) - 1 / math.expm1(tilt + interval) + interval / (tilt + interval)


def _exp(exponent):
    return np.exp(np.minimum(exponent, 700))
