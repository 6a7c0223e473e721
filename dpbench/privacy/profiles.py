"""The privacy profile of a whole ledger: upper bounds of delta at all epsilons, not one alone."""

import functools

import numpy as np

from dpbench.privacy.accountants import steps_of
from dpbench.privacy.amplification import TabulatedProfile
from dpbench.privacy.composition import LossSum
from dpbench.privacy.entries import Unaccountable, deduct_failures, joint_entries
from dpbench.privacy.ledger import Ledger
from dpbench.privacy.noise_ends import unhidden
from dpbench.privacy.tight import sum_of_losses

NODES = 2000
"""Points of a profile: where delta is 1e-12, the chords between them are 0.01% above it."""

BEYOND = 1e-3
"""The last point of a profile has at most this share of the delta asked for."""

LEVELS = (0.5, 0.01)
"""Deltas at which a profile is as precise as at the one asked for."""


@functools.lru_cache(maxsize=1024)
def ledger_profile(ledger: Ledger, delta: float) -> TabulatedProfile:
    """The profile of a ledger, at and above a delta, for noise as it is drawn: the larger of adding
    and removing.

    What noise that ends and sensitivities that may fail take from delta is added everywhere. Raises
    Unaccountable where that is not small against delta, for an exact release and an unknown law.
    """
    entries = list(joint_entries(ledger))
    if any(entry.joint == 0 for entry in entries):
        raise Unaccountable("a ledger with an exact release has no privacy profile.")
    entries, left = deduct_failures(entries, delta - unhidden(ledger))
    steps = steps_of(entries)
    directions = [True] if all(group.rate == 1 for group in steps) else [True, False]
    sums = [sum_of_losses(steps, left, removing) for removing in directions]
    epsilons = np.linspace(0.0, max(_reach(total, BEYOND * left) for total in sums), NODES)
    deltas = np.max([_deltas(total, epsilons, left) for total in sums], axis=0)
    return TabulatedProfile(epsilons, np.minimum(deltas + (delta - left), 1))


def _deltas(total: LossSum, epsilons: np.ndarray, delta: float) -> np.ndarray:
    """Every tilt gives an upper bound everywhere, which is precise around its own delta."""
    tilts = [total.best_tilt(level) for level in (delta, *LEVELS)]
    return np.min([total.deltas(epsilons, total.tilted(tilt)) for tilt in tilts], axis=0)


def _reach(total: LossSum, delta: float) -> float:
    """An epsilon that holds at delta, by Chernoff's bound."""
    tilt = total.best_tilt(delta)
    return max(total.bound(tilt, total.log_moment(tilt), delta) * total.interval, 1e-9)
