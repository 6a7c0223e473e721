"""From an epsilon to the noise that meets it."""

import math
from collections.abc import Callable
from contextlib import suppress

from dpbench.errors import UserError
from dpbench.privacy.accountants import ACCOUNTANTS
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Ledger

NARROW = 1.002
"""How close the ends of an interval of multipliers come before it is halved in the usual way."""


def calibrate(
    ledger_at: Callable[[float], Ledger], epsilon: float, delta: float, accountant: str
) -> float:
    """The smallest noise multiplier, to 0.1%, at which the whole ledger stays within epsilon.

    ledger_at(multiplier) must hold every release, side queries too. Raises UserError where no
    noise on the gradient reaches epsilon, because the side queries alone cost more.
    """
    spend = ACCOUNTANTS[accountant]

    def spent(multiplier: float) -> float:
        return spend(ledger_at(multiplier), delta)

    # From the usual multipliers outwards: a very small one is far from any budget, and has no RDP.
    low, high = 0.4, 0.8
    while low > 0.05 and spent(low) <= epsilon:
        low, high = low / 2, low
    while not spent(high) <= epsilon:
        low, high = high, high * 2
        if high > 1e5:
            raise UserError(
                f"no noise multiplier reaches epsilon={epsilon} at delta={delta}: what the method "
                "releases beside the gradient costs more; raise epsilon or the noise of its counts."
            )
    return _halved(low, high, *_narrowed(low, high, spent, epsilon), lambda m: spent(m) <= epsilon)


def _narrowed(
    low: float, high: float, spent: Callable[[float], float], epsilon: float
) -> tuple[float, float]:
    """A closer interval of multipliers that the one in question lies in, by the Illinois method.

    It works on logarithms, in which epsilon is nearly a line. As epsilon falls with the multiplier,
    nothing outside the interval has to be asked for again.
    """
    with suppress(Unaccountable, ValueError):
        ends = {x: math.log(spent(x) / epsilon) for x in (low, high)}
        above, below, last = ends[low], ends[high], 0
        for _ in range(8):
            share = above / (above - below)
            if high / low < NARROW or not 0 < share < 1:
                break
            middle = low * (high / low) ** share
            found = math.log(spent(middle) / epsilon)
            side = 1 if found > 0 else -1
            # Twice on one side: count the other end for half, so that both come closer.
            if side > 0:
                low, above, below = middle, found, below / 2 if side == last else below
            else:
                high, below, above = middle, found, above / 2 if side == last else above
            last = side
    return low, high


def _halved(
    low: float, high: float, above: float, below: float, within: Callable[[float], bool]
) -> float:
    """The upper end of [low, high], halved to 0.1%; up to `above` nothing is within, from `below`
    everything."""
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        enough = middle >= below or (middle > above and within(middle))
        low, high = (low, middle) if enough else (middle, high)
    return high
