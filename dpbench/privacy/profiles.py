"""The privacy profile of a whole ledger: upper bounds of delta at all epsilons, not one alone.

What an attacker achieves at most follows from it, and epsilons of other adjacencies.
"""

import functools
import math

import numpy as np
from scipy.optimize import brentq

from dpbench.privacy.accountants import steps_of
from dpbench.privacy.amplification import TabulatedProfile
from dpbench.privacy.composition import LossSum
from dpbench.privacy.entries import Unaccountable, deduct_failures, joint_entries, unhidden
from dpbench.privacy.ledger import Ledger
from dpbench.privacy.statement import AttackBounds, Statement
from dpbench.privacy.tight import sum_of_losses

NODES = 2000
"""Points of a profile: where delta is 1e-12, the chords between them are 0.01% above it."""

BEYOND = 1e-3
"""The last point of a profile has at most this share of the delta asked for."""

LEVELS = (0.5, 0.01)
"""Deltas at which a profile is as precise as at the one asked for."""

FALSE_POSITIVES = 1e-3
"""The false-positive rate at which a membership attack is judged (Carlini et al. 2022)."""

CANDIDATES = 10_000
"""The equally likely values, one of which a reconstruction has to name."""

LARGEST_EXPONENT = 700.0
"""Of which exp is still a number in float64."""

SPLITS = np.linspace(0.0, 1.0, 201)
"""Shares of an epsilon that the removal may take, the addition taking the rest."""

PRECISE = 1e-6
"""The absolute precision of an epsilon."""

ATTEMPTS = 3
"""How often a profile is computed, each time to a smaller delta."""


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


def attack_bounds(statement: Statement, ledger: Ledger) -> AttackBounds | None:
    """The bounds of a statement's ledger, for the adjacency of its epsilons; all 1 without privacy,
    and None where it has no epsilon by PLD, or no privacy profile.

    A release with profile d satisfies TPR <= d(e) + exp(e) FPR for every e (Kairouz, Oh and
    Viswanath 2015, Theorem 2.1). Success of a reconstruction is bounded by the true-positive rate
    at the rate of guessing (Hayes, Mahloujifar and Balle 2023, Theorem 2).
    """
    epsilon = statement.get("pld")
    if epsilon is None:
        return None
    if math.isinf(epsilon):
        return AttackBounds(membership_advantage=1.0, true_positive_rate=1.0, reconstruction=1.0)
    try:
        profile = ledger_profile(ledger, statement["delta"])
    except Unaccountable:
        return None
    return AttackBounds(
        membership_advantage=float(profile.at(np.array(0.0))),
        true_positive_rate=true_positives(profile, FALSE_POSITIVES),
        reconstruction=true_positives(profile, 1 / CANDIDATES),
    )


def true_positives(profile: TabulatedProfile, false_positives: float) -> float:
    """The largest true-positive rate at a false-positive rate; the profile is of both directions.

    It is the least of two bounds over all e: d(e) + exp(e) FPR, and, with the roles of the data
    sets exchanged, 1 - exp(-e) (1 - d(e) - FPR).
    """
    epsilons = np.linspace(0.0, profile.largest, 20_001)
    deltas = profile.at(epsilons)
    ends = deltas + np.exp(np.minimum(epsilons, LARGEST_EXPONENT)) * false_positives
    turned = 1 - np.exp(-epsilons) * (1 - deltas - false_positives)
    return float(min(ends.min(), turned.min(), 1.0))


def replace_one_epsilon(ledger: Ledger, delta: float) -> float:
    """An epsilon that holds at a delta if adjacent data sets differ in the value of one example.

    A replacement is a removal and an addition. If both have the privacy profile d, then for all
    epsilons e and f, P(S) <= e^e P'(S) + d(e) and P'(S) <= e^f P''(S) + d(f), so that
    delta(e + f) <= d(e) + e^e d(f) (group privacy: Dwork and Roth 2014, Theorem 2.2, with a delta
    of each step's own). Raises Unaccountable where a ledger has no profile.
    """
    found, tail = math.inf, delta
    for _ in range(ATTEMPTS):
        try:
            profile = ledger_profile(ledger, tail)
        except Unaccountable:  # what noise that ends, or a failure, takes is above so small a tail
            if tail == delta:
                raise
            break
        found = min(found, _smallest(profile, delta))
        # e^e multiplies a delta, so the profile must be precise far below the delta asked for.
        tail = delta * math.exp(-min(found, profile.largest) / 2) / 2
    return found


def other_adjacencies(statement: Statement, ledger: Ledger) -> dict[str, float | None]:
    """Epsilons by PLD for one example that leaves its place empty, `zero_out`, and for one replaced
    by another, `replace_one`; None where the statement has no epsilon by PLD.

    An empty place adds nothing to any release, and the other examples have the same batches as
    before, so the epsilon for adding and removing holds.
    """
    one = statement.get("pld")
    private = one is not None and math.isfinite(one)
    other = replace_one_epsilon(ledger, statement["delta"]) if private else one
    return {"zero_out": one, "replace_one": other}


def _smallest(profile: TabulatedProfile, delta: float) -> float:
    """Infinite if the profile does not reach far enough."""

    def excess(epsilon: float) -> float:
        first = SPLITS * epsilon
        with np.errstate(over="ignore", invalid="ignore"):  # splits that say nothing
            deltas = profile.at(first) + np.exp(first) * profile.at(epsilon - first)
        return float(np.nanmin(deltas)) - delta

    most = 2 * profile.largest
    if excess(most) > 0:
        return math.inf
    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, most, xtol=PRECISE)) + PRECISE
