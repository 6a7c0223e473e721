"""Epsilons of other adjacencies, from the privacy profile of one example added or removed."""

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


def other_adjacencies(statement: Statement, ledger: Ledger) -> dict[str, float | None]:
    """Epsilons by PLD for one example that leaves its place empty, `zero_out`, and for one replaced
    by another, `replace_one`; None where the statement has no epsilon by PLD.

    An empty place adds nothing to any release. The other examples have the same batches as before,
    so the two distributions are those of a removal; if batches are cut, they are closer, as no
    other example moves up. So the epsilon for adding and removing holds.
    """
    one = statement.get("pld")
    private = one is not None and math.isfinite(one)
    other = replace_one_epsilon(ledger, statement["delta"]) if private else one
    return {"zero_out": one, "replace_one": other}


def _smallest(profile: TabulatedProfile, delta: float) -> float:
    """Infinite if the profile does not reach far enough."""

    def excess(epsilon: float) -> float:
        first = SPLITS * epsilon
        deltas = profile.at(first) + np.exp(first) * profile.at(epsilon - first)
        return float(deltas.min()) - delta

    most = 2 * profile.largest
    if excess(most) > 0:
        return math.inf
    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, most, xtol=PRECISE)) + PRECISE
