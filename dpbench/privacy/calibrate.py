"""Calibration: the noise multiplier that meets an epsilon."""

import math
from collections.abc import Callable
from contextlib import suppress

from dpbench.privacy.accountants import SPENT
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Ledger
from dpbench.privacy.statement import UPPER_BOUNDS, AccountantName
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of, positive

BRACKET_RATIO = 1.002
"""The ratio of the ends of a bracket below which it is only bisected."""


LARGEST = 100_000
"""The largest noise multiplier to try."""


def calibrate(
    ledger_at: Callable[[float], Ledger], epsilon: float, delta: float, accountant: str
) -> float:
    """The smallest noise multiplier, to 0.1%, at which the whole ledger stays within epsilon.

    ledger_at(multiplier) must contain every release, including side queries. Raises UserError if
    no multiplier up to LARGEST reaches epsilon, for an epsilon that is not positive, for an unknown
    accountant, and for one whose epsilon is no upper bound.
    """
    positive("epsilon", epsilon)
    spent = SPENT[check_target("accountant", accountant)]

    def epsilon_at(multiplier: float) -> float:
        return spent(ledger_at(multiplier), delta)

    # Outwards from the usual multipliers: very small ones exceed any budget, are slow to account
    # for, and make RDP fail.
    low, high = 0.4, 0.8
    while low > 0.05 and epsilon_at(high) <= epsilon and epsilon_at(low) <= epsilon:
        low, high = low / 2, low
    while not epsilon_at(high) <= epsilon:
        low, high = high, high * 2
        if high > LARGEST:
            raise UserError(
                f"even a noise multiplier of {LARGEST:,} leaves epsilon={epsilon_at(LARGEST):.3g} "
                f"at delta={delta}: raise epsilon={epsilon}, or the noise of what is released "
                "beside the gradient."
            )
    return _bisect(
        low, high, *_bracket(low, high, epsilon_at, epsilon), lambda m: epsilon_at(m) <= epsilon
    )


def check_target(what: str, accountant: str) -> AccountantName:
    """The accountant, by which an epsilon can be a target; UserError unless it is known, and its
    epsilon an upper bound."""
    one_of(what, accountant, SPENT)
    if accountant not in UPPER_BOUNDS:
        raise UserError(f"{what}={accountant} is an approximation and cannot be a target: use pld.")
    return accountant


def _bracket(
    low: float, high: float, epsilon_at: Callable[[float], float], epsilon: float
) -> tuple[float, float]:
    """A narrower bracket of the multiplier that meets epsilon, by the Illinois method.

    It works on logarithms, in which epsilon is nearly linear. Since epsilon decreases in the
    multiplier, nothing outside the bracket has to be evaluated again.
    """
    with suppress(Unaccountable, ValueError):
        ends = {x: math.log(epsilon_at(x) / epsilon) for x in (low, high)}
        above, below, last = ends[low], ends[high], 0
        for _ in range(8):
            share = above / (above - below)
            if high / low < BRACKET_RATIO or not 0 < share < 1:
                break
            middle = low * (high / low) ** share
            excess = math.log(epsilon_at(middle) / epsilon)
            side = 1 if excess > 0 else -1
            # Twice on the same side: halve the value at the other end, so that both ends move.
            if side > 0:
                low, above, below = middle, excess, below / 2 if side == last else below
            else:
                high, below, above = middle, excess, above / 2 if side == last else above
            last = side
    return low, high


def _bisect(
    low: float, high: float, above: float, below: float, within: Callable[[float], bool]
) -> float:
    """The upper end of [low, high], bisected to 0.1%.

    Already known: no multiplier up to `above` is within the budget, and all from `below` on are.
    """
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        enough = middle >= below or (middle > above and within(middle))
        low, high = (low, middle) if enough else (middle, high)
    return high
