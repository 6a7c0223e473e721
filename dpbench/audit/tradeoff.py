"""The trade-off between an attacker's false positives and false negatives that an account allows:
a ledger, or a private search of its runs."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpbench.privacy.accountants import pld_of_reals, steps_of
from dpbench.privacy.entries import deduct_failures, joint_entries
from dpbench.privacy.ledger import Exact, Ledger, Mechanism, Step
from dpbench.privacy.private_selection import Repetitions, SelectionEpsilons, selection_costs
from dpbench.privacy.profiles import ledger_profile
from dpbench.privacy.tight import Steps, sum_of_losses

POINTS = 400
"""Epsilons at which a profile is computed: each bounds the trade-off curve by a straight line."""

TYPICAL_DELTA, MIN_DELTA = 1e-3, 1e-7
"""The delta at which profiles are most exact, and the one at which they end: attacks with thousands
of canaries see no smaller delta."""

LARGEST_EPSILON = 700.0
"""exp of a larger one would overflow."""


class PrivacyProfile(NamedTuple):
    """Upper bounds of delta [N] at epsilons [N] from 0 upwards."""

    epsilons: np.ndarray
    deltas: np.ndarray


@dataclass(frozen=True)
class SearchAccount:
    """The account of a private search: the best of a random number of runs of a ledger."""

    ledger: Ledger
    repetitions: Repetitions

    @property
    def steps(self) -> int:
        return self.ledger.steps

    def cost(self, delta: float) -> SelectionEpsilons:
        """The epsilon of the search by its two accounts."""
        return selection_costs([self.ledger], self.repetitions, delta)[1]


Account = Ledger | SearchAccount


def least_spent(account: Account, delta: float) -> float:
    """The epsilon of an account as a lower bound: the noise of a ledger has no end."""
    if isinstance(account, SearchAccount):
        return account.cost(delta).epsilon
    return pld_of_reals(account, delta)


def scaled_noise(account: Account, factor: float) -> Account:
    """The account with all of its noise multiplied by a factor."""
    if isinstance(account, SearchAccount):
        return replace(account, ledger=_scaled_ledger(account.ledger, factor))
    return _scaled_ledger(account, factor)


def _scaled_ledger(ledger: Ledger, factor: float) -> Ledger:
    scaled = Ledger()
    for step, times in ledger.entries:
        releases = tuple(
            replace(r, mechanism=_scaled(r.mechanism, factor), claimed=None) for r in step.releases
        )
        scaled = scaled.after(Step(step.sampling, releases), times)
    return scaled


def _scaled(mechanism: Mechanism, factor: float) -> Mechanism:
    if not isinstance(mechanism, Exact):
        return replace(mechanism, noise_multiplier=mechanism.noise_multiplier * factor)
    return mechanism


@lru_cache(maxsize=512)
def profiles(account: Account, delta: float) -> tuple[PrivacyProfile, PrivacyProfile]:
    """The privacy profiles of removing an example and of adding one."""
    if isinstance(account, SearchAccount):
        return (_of_search(account, delta),) * 2
    entries, _ = deduct_failures(list(joint_entries(account)), delta)
    steps = steps_of(entries)
    return _privacy_profile(steps, True), _privacy_profile(steps, False)


def _privacy_profile(steps: list[Steps], removing: bool) -> PrivacyProfile:
    total = sum_of_losses(steps, TYPICAL_DELTA, removing)
    epsilons = np.linspace(0, min(total.epsilon(MIN_DELTA), LARGEST_EPSILON), POINTS)
    return PrivacyProfile(
        epsilons, total.deltas(epsilons, total.tilted(total.best_tilt(TYPICAL_DELTA)))
    )


def _of_search(search: SearchAccount, delta: float) -> PrivacyProfile:
    """The profile of both directions: delta(epsilon + excess) <= E[K] d(epsilon)."""
    mean = search.repetitions.mean
    single = ledger_profile(search.ledger, delta / mean)
    epsilons = np.linspace(0, min(single.largest, LARGEST_EPSILON), POINTS)
    excess = search.repetitions.excess(lambda epsilon: float(single.at(np.array(epsilon))))
    return PrivacyProfile(epsilons + excess, np.minimum(mean * single.at(epsilons), 1.0))


def least_fnr(account: Account, fpr: float, delta: float) -> float:
    """The smallest false negative rate of any attack on the account at a false positive rate."""
    present, absent = profiles(account, delta)
    below = 1 - present.deltas - np.exp(present.epsilons) * fpr
    beyond = (1 - absent.deltas - fpr) * np.exp(-absent.epsilons)
    return max(0.0, float(below.max()), float(beyond.max()))
