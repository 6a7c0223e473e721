"""Random allocation of a Gaussian mechanism: each example is in one random step of t.

The outputs of an epoch are post-processing of one vector: of P = 1/t sum_i N(e_i, sigma^2) with the
example, and of Q = N(0, sigma^2) without. Their ratio under Q is the mean of t independent
log-normal variables of mean 1, here replaced by a larger one in the convex order: each value is
split between the grid points on either side of it (docs/privacy/accounting.md).
"""

import functools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from dpbench.privacy.amplification import DirectedProfile, Profile
from dpbench.privacy.gaussian import GaussianProfile

REACH = 11.0
"""Standard deviations of the log-normal variable that its grid covers on either side."""

TAIL = 1e-26
"""The probability, on either side, that is moved to a ratio of 0 or infinity after each sum."""

FINE, ENOUGH_POINTS = 12, 2000
"""Points per standard deviation of the last grid; and the total that always suffices."""

BITS = 10
"""Significant bits of the number of slots: it is rounded down, as fewer slots spend more."""

MAX_LOSS = 300.0
"""The largest loss of the log-normal variable: beyond it exp overflows, and allocation hardly
helps."""


@dataclass(frozen=True, eq=False)
class Ratios:
    """A law under Q of ratios P/Q with mean 1: masses [N] at exp((start + i) interval).

    zero: the mass at 0. infinite: the share of the mean that lies at infinity.
    """

    start: int
    masses: np.ndarray
    interval: float
    zero: float
    infinite: float

    @cached_property
    def values(self) -> np.ndarray:
        return np.exp((self.start + np.arange(len(self.masses))) * self.interval)


@dataclass(frozen=True)
class AllocatedGaussian(DirectedProfile):
    """The privacy profile of an epoch: noise multiplier 1/mu, and one of `slots` steps for each
    example. An upper bound in both directions."""

    mu: float
    slots: int

    @property
    def rounding(self) -> float:
        """A hundred times the largest deviation of the ratio's mean from 1."""
        return 1e-12 * (1000 + self.slots)

    @property
    def largest(self) -> float:
        logs = np.log(self._ratios.values[[0, -1]])
        return float(np.abs(logs).max())

    def removal_deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """E_Q[(r - e^epsilon)_+] for epsilons of at least 0."""
        values, above = self._ratios.values, self._above
        return self._ratios.infinite + np.interp(np.exp(epsilons), values, above)

    def addition_deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """E_Q[(1 - e^epsilon r)_+] for epsilons of at least 0."""
        points = np.concatenate([[0.0], self._ratios.values])
        return np.exp(epsilons) * np.interp(np.exp(-epsilons), points, self._below)

    @property
    def _ratios(self) -> Ratios:
        return _epoch(self.mu, self.slots)

    @cached_property
    def _above(self) -> np.ndarray:
        """E[(r - x)_+] at the grid, linear in between, by sums of positive terms alone."""
        ratios = self._ratios
        mass_above = np.cumsum(ratios.masses[:0:-1])[::-1]
        steps = mass_above * np.diff(ratios.values)
        return np.append(np.cumsum(steps[::-1])[::-1], 0.0)

    @cached_property
    def _below(self) -> np.ndarray:
        """E[(x - r)_+] at 0 and at the grid."""
        ratios = self._ratios
        mass_below = np.cumsum(np.concatenate([[ratios.zero], ratios.masses[:-1]]))
        steps = mass_below * np.diff(ratios.values, prepend=0.0)
        return np.concatenate([[0.0], np.cumsum(steps)])


def allocated(mu: float, slots: int) -> tuple[Profile, float]:
    """The privacy profile of an epoch, and its rate.

    With hardly any noise, the profile of an example whose step is public: also an upper bound.
    """
    if mu * REACH + mu**2 / 2 < MAX_LOSS:
        return AllocatedGaussian(mu, slots), 1 / slots
    return GaussianProfile(mu), 1.0


@functools.lru_cache(maxsize=64)
def _epoch(mu: float, slots: int) -> Ratios:
    """The law of the mean of `slots` independent ratios of the Gaussian mechanism.

    Rounding errors of a part average out over all parts, so the grids of parts may be coarser.
    """
    last = slots.bit_length() - 1
    dropped = max(last + 1 - BITS, 0)
    slots = slots >> dropped << dropped
    finest = _interval(mu, slots)
    power, found, count = _single(mu, finest * 2 ** (last // 4)), None, 0
    for bit in range(last + 1):
        power = _refined(power, finest * 2 ** ((last - bit) // 4))
        if slots >> bit & 1:
            count += 2**bit
            share = 2**bit / count
            found = _mean(power, _refined(found, power.interval), share) if found else power
        power = _mean(power, power, 0.5) if bit < last else power
    assert found is not None
    return found


def _interval(mu: float, slots: int) -> float:
    """The interval with FINE points per standard deviation of the logarithm of the mean."""
    spread = math.sqrt(math.log1p(math.expm1(mu**2) / slots))
    return min(spread / FINE, (2 * REACH * mu + mu**2) / ENOUGH_POINTS)


def _refined(ratios: Ratios, interval: float) -> Ratios:
    step = round(ratios.interval / interval)
    masses = np.zeros(step * (len(ratios.masses) - 1) + 1)
    masses[::step] = ratios.masses
    return Ratios(ratios.start * step, masses, interval, ratios.zero, ratios.infinite)


def _single(mu: float, interval: float) -> Ratios:
    """The log-normal law exp(mu Z - mu^2/2), each cell split between its ends."""
    last = math.ceil((mu**2 / 2 + REACH * mu) / interval)
    first = math.floor((-(mu**2) / 2 - REACH * mu) / interval)
    z = np.arange(first, last + 1) * interval / mu + mu / 2
    values = np.exp(np.arange(first, last + 1) * interval)
    mass, mean = _cells(z), _cells(z - mu)
    upper = np.clip((mean / values[:-1] - mass) / math.expm1(interval), 0, mass)
    masses = np.zeros(len(z))
    masses[:-1] += mass - upper
    masses[1:] += upper
    low, high = ndtr(z[0]), ndtr(-z[-1])
    at_first = ndtr(z[0] - mu) / values[0]
    masses[0] += at_first
    masses[-1] += high
    infinite = max(ndtr(mu - z[-1]) - high * values[-1], 0.0)
    return Ratios(first, masses, interval, float(low - at_first), float(infinite))


def _cells(z: np.ndarray) -> np.ndarray:
    """The normal probabilities between neighbouring points, with small relative errors."""
    return np.where(z[:-1] > 0, -np.diff(ndtr(-z)), np.diff(ndtr(z)))


def _mean(one: Ratios, other: Ratios, share: float) -> Ratios:
    """The law of share * r + (1 - share) * s, independent r of `one` and s of `other`.

    The index of a sum is that of r plus a function of the difference of the two indices, so all
    pairs with the same difference are split at once.
    """
    interval, (n, m) = one.interval, (len(one.masses), len(other.masses))
    start = min(one.start, other.start)
    end = max(one.start + n, other.start + m)
    masses = np.zeros(end - start + 2)
    shift = other.start - one.start
    twice = one is other  # each pair of different values then stands for two
    differences = np.arange(0 if twice else shift - n + 1, shift + m)
    places = np.logaddexp(math.log(share), math.log1p(-share) + differences * interval) / interval
    lower = np.floor(places)
    uppers = np.expm1((places - lower) * interval) / math.expm1(interval)
    for difference, place, upper in zip(
        differences.tolist(), lower.astype(int).tolist(), uppers.tolist(), strict=True
    ):
        first, last = max(0, shift - difference), min(n, m + shift - difference)
        partner = first + difference - shift
        pairs = one.masses[first:last] * other.masses[partner : partner + last - first]
        pairs *= 1 + (twice and difference > 0)
        to = one.start - start + first + place
        masses[to : to + len(pairs)] += (1 - upper) * pairs
        masses[to + 1 : to + 1 + len(pairs)] += upper * pairs
    return _trimmed(_with_zeros(Ratios(start, masses, interval, 0.0, 0.0), one, other, share))


def _with_zeros(pairs: Ratios, one: Ratios, other: Ratios, share: float) -> Ratios:
    """Adds the pairs with a ratio of 0, split between 0 and the other, and the mass at infinity."""
    masses, kept = pairs.masses, 1 - share
    begin, other_begin = one.start - pairs.start, other.start - pairs.start
    masses[begin : begin + len(one.masses)] += share * other.zero * one.masses
    masses[other_begin : other_begin + len(other.masses)] += kept * one.zero * other.masses
    zero = one.zero * other.zero
    zero += kept * other.zero * (1 - one.zero) + share * one.zero * (1 - other.zero)
    infinite = share * one.infinite + kept * other.infinite
    return Ratios(pairs.start, masses, pairs.interval, zero, infinite)


def _trimmed(ratios: Ratios) -> Ratios:
    """Splits the smallest ratios between 0 and the first point kept, and the largest ones between
    the last point kept and infinity."""
    masses, values = ratios.masses, ratios.values
    first = int(np.argmax(np.cumsum(masses) > TAIL))
    last = len(masses) - 1 - int(np.argmax(np.cumsum((masses * values)[::-1]) > TAIL))
    low, low_mean = masses[:first].sum(), (masses * values)[:first].sum() / values[first]
    high = masses[last + 1 :]
    left = masses[first : last + 1].copy()
    left[0] += low_mean
    left[-1] += high.sum()
    beyond = float(high @ (values[last + 1 :] - values[last]))
    return Ratios(
        ratios.start + first,
        left,
        ratios.interval,
        float(ratios.zero + low - low_mean),
        ratios.infinite + beyond,
    )
