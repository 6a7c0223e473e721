"""Privacy profiles of noise on each of d coordinates, and of its sign: stored as points, since the
chord between two points of a profile lies above it (it is convex in exp(epsilon)).

They dominate a step regardless of earlier releases, so they compose (Zhu, Dong and Wang 2022).
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, betaincc

from dpbench.privacy.amplification import TabulatedProfile
from dpbench.privacy.composition import LossSum, connect_dots
from dpbench.privacy.ledger import CoordinateMechanism

NODES = 2400
"""Points of a profile: the chords between them are 0.03% above it where delta is 1e-12."""

CELLS = 100
"""Grid points between a loss of 0 and the largest loss of one coordinate of a location family: the
variance of its loss is then 0.005% too large. There are more points for few coordinates, and fewer
for more than 100,000, but at least a fifth as many: 0.1%."""

GROUPS = 16
"""The points of a profile of d coordinates are computed in this many groups, each with a tilt."""

TRACKED_SCALES = 14.0
"""Scales up to which a loss is tracked; beyond, at probability 1e-44, it counts as infinite."""

CHECKED_COUNTS = 33
"""Counts at which the supremum over places is checked in addition to a ternary search."""

SMALLEST = 1e-290
"""A probability above which float64 has all digits."""

ROUNDING = 1e-9
"""A bound of the relative round-off in a difference of two probabilities."""


@dataclass(frozen=True, eq=False)
class CoordinateProfile(TabulatedProfile):
    """The profile of noise on each coordinate."""

    rounding: float = ROUNDING

    def added_moments(self, rate: float, orders: np.ndarray) -> np.ndarray:
        """An upper bound of log E_Q[(1 - q + q r)^(1 - a)] [K], for orders a [K].

        That is the moment of Q against (1 - q) Q + q P. The interpolated profile belongs to a
        ratio r with mass at the points only: under Q, at exp(epsilon) the change of slope, at
        exp(-epsilon) exp(epsilon) times as much, at 0 the last delta.
        """
        gamma = np.exp(self.epsilons)
        slopes = np.append(np.diff(self.deltas) / np.diff(gamma), 0.0)
        mass = np.maximum(np.diff(slopes), 0)
        up, down = mass, mass * gamma[1:]
        rest = 1 - up.sum() - down.sum() - self.deltas[-1]
        r = np.concatenate([gamma[1:], 1 / gamma[1:], [1.0, 0.0]])
        weights = np.concatenate([up, down, [max(rest, 0.0), self.deltas[-1]]])
        r, weights = r[weights > 0], weights[weights > 0]  # the largest must have a weight
        log_mixed = np.log1p(rate * (r - 1)) if rate < 1 else np.log(np.maximum(r, 1e-300))
        powers = np.outer(1 - orders, log_mixed)
        top = powers.max(1)
        return np.maximum(top + np.log(np.exp(powers - top[:, None]) @ weights), 0)


@functools.lru_cache(maxsize=256)
def profile(mechanism: CoordinateMechanism) -> CoordinateProfile:
    """The profile of one release without sampling, rounded up."""
    if mechanism.signed:
        return signs(mechanism.dimension, mechanism.shift, supremum_over_places)
    return location(mechanism.dimension, mechanism.shift, PROFILES[mechanism.noise])


def logistic(shift: float, epsilons: np.ndarray) -> np.ndarray:
    """Logistic(Delta, 1) against Logistic(0, 1), for |epsilon| <= Delta."""
    return np.expm1((epsilons - shift) / 2) ** 2 / -math.expm1(-shift)


def laplace(shift: float, epsilons: np.ndarray) -> np.ndarray:
    """Laplace(Delta, 1) against Laplace(0, 1), for |epsilon| <= Delta."""
    return -np.expm1((epsilons - shift) / 2)


PROFILES: dict[str, Callable[[float, np.ndarray], np.ndarray]] = {
    "logistic": logistic,
    "laplace": laplace,
}


def location(
    dimension: int, shift: float, single: Callable[[float, np.ndarray], np.ndarray]
) -> CoordinateProfile:
    """d coordinates of a location family, each at its full shift: composed like d unsampled
    steps."""
    cells = math.ceil(CELLS * max(min(1.0, math.sqrt(1e5 / dimension)), 0.2) + 5000 / dimension)
    step = shift / cells

    def deltas(epsilons: np.ndarray) -> np.ndarray:
        return single(shift, np.minimum(epsilons, shift))

    losses = connect_dots(deltas, deltas, step, cells, cells, 1e-15)
    nodes = _nodes(
        dimension * shift, dimension * shift**2 / 2 + TRACKED_SCALES * math.sqrt(dimension) * shift
    )
    if dimension == 1:
        return CoordinateProfile(nodes, deltas(nodes))
    values = _monotone(_in_groups(LossSum([(losses, dimension)], step), nodes))
    if nodes[-1] >= dimension * shift:
        values[-1] = 0.0  # no loss is larger
    return CoordinateProfile(nodes, values, rounding=1e-12)


def _in_groups(total: LossSum, epsilons: np.ndarray) -> np.ndarray:
    """Deltas with a small relative error at all epsilons, which span many magnitudes of delta."""
    deltas = []
    for group in np.array_split(epsilons, GROUPS):
        # The best tilt of a point bounds points above it well, and those below too loosely.
        steepest = 300 * total.interval / (group[-1] - group[0])  # where exp does not overflow
        tilt = min(total.tilt_to(group[0]), steepest)
        deltas.append(total.deltas(group, total.tilted(tilt)))
    return np.concatenate(deltas)


def signs(
    dimension: int, shift: float, deltas: Callable[[int, float, np.ndarray], np.ndarray]
) -> CoordinateProfile:
    """d signs of logistic noise; the loss of each has a variance of at most Delta^2/4."""
    spread = math.sqrt(dimension) * shift / 2
    nodes = _nodes(dimension * shift, spread**2 / 2 + TRACKED_SCALES * spread)
    return CoordinateProfile(nodes, _monotone(deltas(dimension, shift, nodes)))


def _nodes(largest: float, far: float) -> np.ndarray:
    return np.linspace(0, min(largest * (1 + 1e-12), far), NODES)


def _monotone(deltas: np.ndarray) -> np.ndarray:
    return np.minimum(np.minimum.accumulate(np.maximum(deltas, 0)), 1)


def at_count(
    dimension: int, shift: float, epsilons: np.ndarray, zeros: np.ndarray, t: np.ndarray
) -> np.ndarray:
    """P(M <= zeros) - e^epsilon Q(M <= zeros), M binomial: the number of outputs -1 among d, of
    which each has the loss t - Delta, and an output 1 has t."""
    up, down = math.expm1(shift), math.expm1(-shift)
    p = _at_most(zeros, dimension, np.expm1(t) / up, np.expm1(t - shift) / down)
    q = _at_most(zeros, dimension, np.expm1(-t) / down, np.expm1(shift - t) / up)
    # Without the last term, where it may have lost its digits, the bound is larger.
    exponents = epsilons + np.log(np.maximum(q, SMALLEST))
    return p - np.where(q > SMALLEST, np.exp(np.minimum(exponents, 700.0)), 0.0)


def _at_most(zeros: np.ndarray, dimension: int, one: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """P(M <= zeros) for M binomial among `dimension`, by the probability of `one` and its rest.

    Each of the two has its own digits: the rest may be far below the round-off of 1.
    """
    below, above, likely = zeros + 1, dimension - zeros, one > 0.5
    found = np.empty(one.shape)
    # The binomial distribution function; bdtr loses its digits at some million coordinates.
    betaincc(below, above, np.clip(one, 0, 1), out=found, where=~likely)
    betainc(above, below, np.clip(rest, 0, 1), out=found, where=likely)
    return found


def supremum_over_places(dimension: int, shift: float, epsilons: np.ndarray) -> np.ndarray:
    """The supremum over places: for each count, the best t is (epsilon + (count + 1) Delta)/(d + 1)
    (Dong, Durfee and Rogers 2020, Theorem 3.2).

    The best count is found by ternary search, which needs a single peak. That is not proven, so
    evenly spaced counts are checked as well.
    """

    def at(zeros: np.ndarray) -> np.ndarray:
        t = np.clip((epsilons + (zeros + 1) * shift) / (dimension + 1), 0, shift)
        return at_count(dimension, shift, epsilons, zeros, t)

    low, high = np.zeros(len(epsilons)), np.full(len(epsilons), dimension - 1.0)
    while (high - low).max() > 2:
        third = np.floor((high - low) / 3)
        left, right = low + third, high - third
        better = at(left) >= at(right)
        low, high = np.where(better, low, left), np.where(better, right, high)
    peak = [np.minimum(low + i, dimension - 1) for i in range(3)]
    spread = np.unique(np.linspace(0, dimension - 1, CHECKED_COUNTS).round())
    return np.max([at(zeros) for zeros in (*peak, *spread)], axis=0)


def symmetric_place(dimension: int, shift: float, epsilons: np.ndarray) -> np.ndarray:
    """The profile of the symmetric pair, t = Delta/2: such data exist, so it is a lower bound."""
    half = np.full(len(epsilons), shift / 2)
    # Counts whose loss d t - Delta M is above epsilon.
    zeros = np.ceil(dimension / 2 - epsilons / shift) - 1
    return np.where(
        zeros < 0, 0.0, at_count(dimension, shift, epsilons, np.maximum(zeros, 0), half)
    )
