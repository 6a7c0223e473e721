"""A tight upper bound of epsilon for steps with known privacy profiles, for any delta."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dpbench.privacy.amplification import Profile, addition_deltas, removal_deltas
from dpbench.privacy.composition import Losses, LossSum, connect_dots

FINE, USUAL = 60, 1e-4
"""Grid points per standard deviation of the loss of a step, which make its variance 0.005% too
large; and the interval that is fine enough for any step."""

ENOUGH_POINTS, MAX_POINTS = 2**18, 2**20
"""Grid points that suffice for a step finer than usual; and the longest grid of a step or of the
sum of all steps: some 100 MiB."""

NEGLIGIBLE = 1e-7
"""The share of delta that may go to losses beyond the grid."""


class Steps(NamedTuple):
    """Steps with the same privacy profile, each on a Poisson sample of the same rate, unless the
    profile includes sampling."""

    profile: Profile
    rate: float
    times: int


Deltas = Callable[[np.ndarray], np.ndarray]


class Direction:
    """Steps in one direction (removing or adding): deltas, those of the reverse direction, and the
    largest losses down and up."""

    def __init__(self, steps: Steps, delta: float, times: int, removing: bool):
        self.steps, profile, rate = steps, steps.profile, steps.rate
        both: tuple[Deltas, Deltas] = (
            lambda epsilons: removal_deltas(profile, rate, epsilons),
            lambda epsilons: addition_deltas(profile, rate, epsilons),
        )
        self.deltas, self.reverse = both if removing else both[::-1]
        self.up = _reach(self.deltas, NEGLIGIBLE * delta / times, profile.largest)
        self.down = _reach(lambda e: np.exp(-e) * self.reverse(e), 1e-9 / times, profile.largest)

    def losses(self, interval: float) -> tuple[Losses, int]:
        """The losses of a step on a grid, and the number of steps."""
        ends = math.ceil(self.down / interval), math.ceil(self.up / interval)
        rounding = self.steps.profile.rounding
        return connect_dots(self.deltas, self.reverse, interval, *ends, rounding), self.steps.times


def tight_epsilon(steps: Sequence[Steps], delta: float) -> float:
    """Epsilon for removing and for adding an example; infinity if no finite one is found."""
    epsilon = 0.0
    for removing in [True] if all(group.rate == 1 for group in steps) else [True, False]:
        epsilon = sum_of_losses(steps, delta, removing).epsilon(delta, least=epsilon)
    return epsilon


def sum_of_losses(steps: Sequence[Steps], delta: float, removing: bool) -> LossSum:
    """The sum of all losses, on a grid as fine as needed and as memory allows."""
    times = sum(group.times for group in steps)
    directions = [Direction(group, delta, times, removing) for group in steps]
    widest = max(direction.down + direction.up for direction in directions)
    coarsest = widest / 2**14
    interval = _interval(_on_grid(directions, coarsest), delta, widest)
    if interval < coarsest / 2:
        # A sum narrower than the coarse grid's interval looked too wide on it.
        interval = _interval(_on_grid(directions, interval), delta, widest)
    return _on_grid(directions, interval)


def _interval(total: LossSum, delta: float, widest: float) -> float:
    """The interval that the sum needs, judged by the sum on another grid."""
    spread = total.spread(total.best_tilt(delta)) * total.interval
    needed = min(max(spread / math.sqrt(total.times) / FINE, widest / ENOUGH_POINTS), USUAL)
    return max(needed, widest / MAX_POINTS, 20 * spread / MAX_POINTS)


def _on_grid(directions: Sequence[Direction], interval: float) -> LossSum:
    return LossSum([direction.losses(interval) for direction in directions], interval)


def _reach(deltas: Deltas, enough: float, largest: float) -> float:
    """The epsilon, at most `largest`, from which on deltas are small enough, to a few percent."""

    def within(epsilon: float) -> bool:
        return epsilon >= largest or bool(deltas(np.array([epsilon]))[0] <= enough)

    high = 1e-8
    while not within(high):
        high *= 2
    low = high / 2
    for _ in range(6):
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return min(high, largest)
