"""Calibration: the noise multiplier that meets an epsilon."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from dpbench.privacy.accountants import SPENT
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Ledger
from dpbench.privacy.statement import BEST, UPPER_BOUNDS, AccountantName
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of, positive

BRACKET_RATIO = 1.002
"""The ratio of the ends of a bracket below which it is only bisected."""

PRECISE, MOST_SAVED = 1e-3, 1.5
"""By the smaller bound: how far below epsilon the result may be, relative to it, and the ratio of
multipliers by which a bracket is widened."""

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
    if check_target("accountant", accountant) == BEST:
        return _smallest(ledger_at, epsilon, delta)
    epsilon_at = _spent(ledger_at, delta, accountant)
    # Outwards from the usual multipliers: very small ones exceed any budget, are slow to account
    # for, and make RDP fail.
    low, high = 0.4, 0.8
    while low > 0.05 and epsilon_at(high) <= epsilon and epsilon_at(low) <= epsilon:
        low, high = low / 2, low
    while not epsilon_at(high) <= epsilon:
        if high == LARGEST:
            raise UserError(
                f"even a noise multiplier of {LARGEST:,} leaves epsilon={epsilon_at(LARGEST):.3g} "
                f"at delta={delta}: raise epsilon={epsilon} or delta, or the noise of what is "
                "released beside the gradient."
            )
        low, high = high, min(high * 2, LARGEST)
    return _bisect(
        low, high, *_bracket(low, high, epsilon_at, epsilon), lambda m: epsilon_at(m) <= epsilon
    )


def _smallest(ledger_at: Callable[[float], Ledger], epsilon: float, delta: float) -> float:
    """The smaller of the multipliers by RDP and by PLD, at which the smaller bound meets epsilon.

    PLD takes tens of times as long, so it starts at what RDP needs, and ends as soon as what it
    spends is within a thousandth of epsilon.
    """
    try:
        high = calibrate(ledger_at, epsilon, delta, "rdp")
    except UserError:
        return calibrate(ledger_at, epsilon, delta, "pld")
    epsilon_at = _spent(ledger_at, delta, "pld")
    with suppress(Unaccountable):
        if (spent := epsilon_at(high)) <= epsilon:
            low = high * max(spent / epsilon, 1 / MOST_SAVED)
            while epsilon_at(low) <= epsilon * (1 - PRECISE):
                low, high = low / MOST_SAVED, low
            aim = epsilon * (1 - PRECISE / 2)
            low, high = _bracket(low, high, epsilon_at, aim, PRECISE / 2)
            return low if epsilon_at(low) <= epsilon else high
    return high


def _spent(
    ledger_at: Callable[[float], Ledger], delta: float, accountant: str
) -> Callable[[float], float]:
    return lambda multiplier: SPENT[cast(AccountantName, accountant)](ledger_at(multiplier), delta)


def check_target(what: str, accountant: str) -> str:
    """The accountant, by which an epsilon can be a target; UserError unless it is known, and its
    epsilon an upper bound."""
    one_of(what, accountant, (*SPENT, BEST))
    if accountant not in (*UPPER_BOUNDS, BEST):
        raise UserError(f"{what}={accountant} is an approximation and cannot be a target: use pld.")
    return accountant


def _bracket(
    low: float,
    high: float,
    epsilon_at: Callable[[float], float],
    epsilon: float,
    enough: float = 0.0,
) -> tuple[float, float]:
    """A narrower bracket of the multiplier that meets epsilon, by the Illinois method.

    It works on logarithms, in which epsilon is nearly linear. Since epsilon decreases in the
    multiplier, nothing outside the bracket has to be evaluated again. enough: the relative distance
    from epsilon of either end at which it stops.
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
            if abs(excess) <= enough:
                break
    return low, high


def _bisect(
    low: float, high: float, above: float, below: float, within: Callable[[float], bool]
) -> float:
    """The upper end of [low, high], bisected to 0.1%; no multiplier up to `above` is within the
    budget, and all from `below` on are."""
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        enough = middle >= below or (middle > above and within(middle))
        low, high = (low, middle) if enough else (middle, high)
    return high
