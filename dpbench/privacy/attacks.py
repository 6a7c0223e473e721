"""What an epsilon means to an attacker: bounds of attacks, from the privacy profile of a ledger."""

import math

import numpy as np

from dpbench.privacy.amplification import TabulatedProfile
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import Ledger
from dpbench.privacy.profiles import ledger_profile
from dpbench.privacy.statement import AttackBounds, Statement

FALSE_POSITIVES = 1e-3
"""The false-positive rate at which a membership attack is judged (Carlini et al. 2022)."""

CANDIDATES = 10_000
"""The equally likely values, one of which a reconstruction has to name."""

LARGEST_EXPONENT = 700.0
"""Of which exp is still a number in float64."""


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
