"""The tightest epsilon of steps whose privacy profiles are known: an upper bound for any delta."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dpbench.privacy.composition import Sum, connected
from dpbench.privacy.sampling import Symmetric, added, removed

FINE, USUAL = 60, 1e-4
"""Points of the grid in the standard deviation of the loss of a step, which makes its variance
0.005% too large; and the interval of a grid where that asks for less."""

ENOUGH_POINTS, MOST_POINTS = 2**18, 2**20
"""The finest grid of a step, where it is not the usual one; and the longest grid, of a step or of
the sum of all steps: some 100 MiB."""

NEGLIGIBLE = 1e-7
"""The share of delta that may go to losses beyond the grid."""


class Steps(NamedTuple):
    """So many steps that release what has a profile, each from a Poisson sample of that rate."""

    profile: Symmetric
    rate: float
    times: int


Deltas = Callable[[np.ndarray], np.ndarray]


class Direction(NamedTuple):
    """The steps in one direction: the deltas, those of the other direction, and how far up and down
    losses reach."""

    deltas: Deltas
    others: Deltas
    down: float
    up: float
    rounding: float
    times: int


def tight_epsilon(steps: Sequence[Steps], delta: float) -> float:
    """Epsilon for removing and for adding an example; infinity where no finite one is found."""
    return max(
        sum_of_losses(steps, delta, removing).epsilon(delta)
        for removing in ([True] if all(one.rate == 1 for one in steps) else [True, False])
    )


def sum_of_losses(steps: Sequence[Steps], delta: float, removing: bool) -> Sum:
    """The sum of all losses on a grid that is as fine as it must be and memory allows."""
    times = sum(one.times for one in steps)
    ways = [_direction(one, delta, times, removing) for one in steps]
    widest = max(way.down + way.up for way in ways)
    coarsest = widest / 2**14
    interval = _fitting(_on_grid(ways, coarsest), delta, widest)
    if interval < coarsest / 2:
        # What is finer than that grid looked too wide on it.
        interval = _fitting(_on_grid(ways, interval), delta, widest)
    return _on_grid(ways, interval)


def _fitting(total: Sum, delta: float, widest: float) -> float:
    """The interval of a grid by what the sum is on another one."""
    spread = total.spread(total.best_tilt(delta)) * total.interval
    needed = min(max(spread / math.sqrt(total.times) / FINE, widest / ENOUGH_POINTS), USUAL)
    return max(needed, widest / MOST_POINTS, 20 * spread / MOST_POINTS)


def _on_grid(ways: Sequence[Direction], interval: float) -> Sum:
    parts = [
        (
            connected(
                way.deltas,
                way.others,
                interval,
                math.ceil(way.down / interval),
                math.ceil(way.up / interval),
                way.rounding,
            ),
            way.times,
        )
        for way in ways
    ]
    return Sum(parts, interval)


def _direction(steps: Steps, delta: float, times: int, removing: bool) -> Direction:
    profile, rate = steps.profile, steps.rate
    ways: tuple[Deltas, Deltas] = (
        lambda epsilons: removed(profile, rate, epsilons),
        lambda epsilons: added(profile, rate, epsilons),
    )
    deltas, others = ways if removing else ways[::-1]
    up = _reach(deltas, NEGLIGIBLE * delta / times, profile.largest)
    down = _reach(lambda e: np.exp(-e) * others(e), 1e-9 / times, profile.largest)
    return Direction(deltas, others, down, up, profile.rounding, steps.times)


def _reach(deltas: Deltas, enough: float, largest: float) -> float:
    """An epsilon from which deltas are small enough, or the largest, within some percent."""

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
