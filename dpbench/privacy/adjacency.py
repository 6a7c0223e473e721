"""Epsilons for one example replaced by another, from the privacy profile of one removed."""

import math

import numpy as np
from scipy.optimize import brentq

from dpbench.privacy.amplification import TabulatedProfile
from dpbench.privacy.ledger import Ledger
from dpbench.privacy.profiles import ledger_profile
from dpbench.privacy.statement import Statement

SPLITS = np.linspace(0.0, 1.0, 201)
"""Shares of an epsilon that the removal may take, the addition taking the rest."""

PRECISE = 1e-6
"""The absolute precision of an epsilon."""

ATTEMPTS = 3
"""How often a profile is computed, each time to a smaller delta."""


def replace_one_epsilon(ledger: Ledger, delta: float) -> float:
    """An epsilon that holds at a delta if adjacent data sets differ in the value of one example.

    A replacement is a removal and an addition. If both have the privacy profile d, then for all
    epsilons e and f, P(S) <= e^e P'(S) + d(e) and P'(S) <= e^f P''(S) + d(f), so that
    delta(e + f) <= d(e) + e^e d(f) (group privacy: Dwork and Roth 2014, Theorem 2.2, with a delta
    of each step's own). Raises Unaccountable where a ledger has no profile.
    """
    found, tail = math.inf, delta
    for _ in range(ATTEMPTS):
        profile = ledger_profile(ledger, tail)
        found = min(found, _smallest(profile, delta))
        # e^e multiplies a delta, so the profile must be precise far below the delta asked for.
        tail = delta * math.exp(-min(found, profile.largest) / 2) / 2
    return found


def replaced(statement: Statement, ledger: Ledger) -> float | None:
    """`replace_one_epsilon` of a statement's ledger; infinite without privacy, and None where the
    statement has no epsilon by PLD either."""
    one = statement.get("pld")
    if one is None or math.isinf(one):
        return one
    return replace_one_epsilon(ledger, statement["delta"])


def _smallest(profile: TabulatedProfile, delta: float) -> float:
    """Infinite if the profile does not reach far enough."""

    def excess(epsilon: float) -> float:
        return _replacement_delta(profile, epsilon) - delta

    most = 2 * profile.largest
    if excess(most) > 0:
        return math.inf
    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, most, xtol=PRECISE)) + PRECISE


def _replacement_delta(profile: TabulatedProfile, epsilon: float) -> float:
    first = SPLITS * epsilon
    deltas = profile.at(first) + np.exp(first) * profile.at(epsilon - first)
    return float(deltas.min())
