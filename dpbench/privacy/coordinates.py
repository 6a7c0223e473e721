"""Epsilons of noise on each of d coordinates, and of its sign: by profiles and Rényi divergences.

Profiles are stored as points, as the chord between two points lies above them (they are convex in
exp(epsilon)); they dominate a step regardless of earlier releases, so they compose (Zhu, Dong and
Wang 2022). With Delta = G/scale, P and Q the output distributions with and without an example, and
r = P/Q, a moment is E_Q[r^k]. The worst cases are derived in docs/privacy/accounting.md.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, betaincc, gammaln, logsumexp

from dpbench.privacy.amplification import TabulatedProfile
from dpbench.privacy.composition import LossSum, connect_dots
from dpbench.privacy.ledger import CoordinateMechanism
from dpbench.privacy.tight import Steps, tight_epsilon

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

CoordinateEntry = tuple[float, CoordinateMechanism, int]

MOMENT_ROUNDING = 4e-15
"""A bound of the round-off in a log moment, per coordinate and order; it is added."""


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


def renyi(entries: Sequence[CoordinateEntry], orders: np.ndarray) -> np.ndarray:
    """The Rényi divergences of all steps at orders > 1 [K]: upper bounds, adding and removing."""
    total = np.zeros(len(orders))
    for rate, mechanism, times in entries:
        total += times * np.maximum(
            removed_moments(mechanism, rate, orders), _added_moments(mechanism, rate, orders)
        )
    return total / (orders - 1)


def _added_moments(mechanism: CoordinateMechanism, rate: float, orders: np.ndarray) -> np.ndarray:
    """Log moments for adding: by the profile for signs; 0 where removing is known to cost more.

    Removing costs more for a pair that a reflection swaps (Mironov, Talwar and Zhang 2019, Theorem
    5), hence for additive symmetric noise, but not for signs at a given place.
    """
    if not mechanism.signed or rate == 1:
        return np.zeros(len(orders))
    return profile(mechanism).added_moments(rate, orders)


def equivalent_sigma(mechanism: CoordinateMechanism) -> float:
    """The noise multiplier of the Gaussian mechanism with the same chi-squared divergence, on which
    alone the central limit of Bu et al. 2020 depends."""
    return float(log_moments(mechanism, np.array([2.0]))[0]) ** -0.5


def symmetric_epsilon(entries: Sequence[CoordinateEntry], delta: float) -> float:
    """The epsilon of the symmetric pair of a sign of logistic noise in every step: a lower
    bound."""
    return tight_epsilon(
        [
            Steps(signs(mechanism.dimension, mechanism.shift, symmetric_place), rate, times)
            for rate, mechanism, times in entries
        ],
        delta,
    )


def log_moments(mechanism: CoordinateMechanism, orders: np.ndarray) -> np.ndarray:
    """log E_Q[r^k] or an upper bound [K], for orders k >= 0 [K]; 0 at orders up to 1."""
    law = "signed" if mechanism.signed else mechanism.noise
    moments = np.zeros(len(orders))
    higher = orders > 1
    k = orders[higher]
    moments[higher] = mechanism.dimension * (
        LOG_MOMENTS[law](mechanism.shift, k) + MOMENT_ROUNDING * k
    )
    return moments


def _logistic(shift: float, k: np.ndarray) -> np.ndarray:
    """sinh((2k - 1) Delta/2) / ((2k - 1) sinh(Delta/2)): the integral over u = F(x)."""
    return _log_sinhc((2 * k - 1) * shift / 2) - _log_sinhc(np.array(shift / 2))


def _log_sinhc(x: np.ndarray) -> np.ndarray:
    """log(sinh(x)/x) for x > 0."""
    small = np.minimum(x, 1.0)
    large = np.maximum(x, 1.0)
    return np.where(
        x < 1,
        np.log1p(small**2 / 6 * (1 + small**2 / 20 * (1 + small**2 / 42 * _series_tail(small)))),
        large + np.log(-np.expm1(-2 * large)) - np.log(2 * large),
    )


def _series_tail(x: np.ndarray) -> np.ndarray:
    """The tail of the series of sinh(x)/x for x below 1, to 1e-16."""
    return 1 + x**2 / 72 * (1 + x**2 / 110 * (1 + x**2 / 156 * (1 + x**2 / 210)))


def _laplace(shift: float, k: np.ndarray) -> np.ndarray:
    """k/(2k-1) exp((k-1) Delta) + (k-1)/(2k-1) exp(-k Delta) (Mironov 2017, Table II)."""
    up = np.log(k / (2 * k - 1)) + (k - 1) * shift
    return np.logaddexp(up, np.log((k - 1) / (2 * k - 1)) - k * shift)


def _signed(shift: float, k: np.ndarray) -> np.ndarray:
    """The supremum over the place of one coordinate, in closed form.

    With t in [0, Delta] the loss of the output 1, t - Delta that of -1, and u = exp(t), the moment
    is u^(k-1) (A - u B)/(exp(Delta) - 1), A = exp(Delta) - exp(-(k-1) Delta),
    B = 1 - exp(-(k-1) Delta), which is largest at u = (k-1) A/(k B).
    """
    log_a = shift + np.log(-np.expm1(-k * shift))
    log_b = np.log(-np.expm1(-(k - 1) * shift))
    log_u = np.log((k - 1) / k) + log_a - log_b
    return (k - 1) * log_u + log_a - np.log(k) - math.log(math.expm1(shift))


LOG_MOMENTS = {"logistic": _logistic, "laplace": _laplace, "signed": _signed}


def removed_moments(mechanism: CoordinateMechanism, rate: float, orders: np.ndarray) -> np.ndarray:
    """An upper bound of log E_Q[(1 - q + q r)^a] [K], for orders a > 1 [K].

    Integer orders use the binomial theorem; interpolation between them is an upper bound, as the
    logarithm of a moment is convex in its order. With q = 1 these are the unsampled moments.
    """
    if rate == 1:
        return log_moments(mechanism, orders)
    integers = np.unique(np.concatenate([np.floor(orders), np.ceil(orders)])).astype(int)
    moments = log_moments(mechanism, np.arange(integers[-1] + 1.0))
    sampled = [_sampled_moment(moments[: order + 1], rate) for order in integers]
    return np.interp(orders, integers, sampled)


def _sampled_moment(moments: np.ndarray, rate: float) -> float:
    """log sum_k C(a, k) (1 - q)^(a - k) q^k exp(moments_k), k from 0 to a."""
    a, k = len(moments) - 1, np.arange(len(moments))
    choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    weights = choose + (a - k) * math.log1p(-rate) + k * math.log(rate)
    return max(float(logsumexp(weights + moments)), 0.0)
