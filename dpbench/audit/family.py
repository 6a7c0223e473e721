"""What a ledger allows an attacker: its trade-off of errors, with more noise or less."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpbench.privacy.coordinate_profiles import profile
from dpbench.privacy.entries import Entry, deduct_failures, joint_entries
from dpbench.privacy.gaussian import GaussianProfile
from dpbench.privacy.ledger import CoordinateMechanism, GaussianMechanism, Ledger, Mechanism, Step
from dpbench.privacy.sampling import SymmetricProfile
from dpbench.privacy.tight import Steps, sum_of_losses

LINES = 400
"""How many straight lines of the trade-off are looked at, of which it is the highest."""

USUAL_DELTA, LEAST_DELTA = 1e-3, 1e-7
"""Which losses are computed most exactly, and where lines end: attacks with thousands of canaries
see no smaller delta."""

LARGEST_EPSILON = 700.0
"""Where exp does not overflow yet."""


class Lines(NamedTuple):
    """Deltas [N], upper bounds, at epsilons [N] from 0 upwards."""

    epsilons: np.ndarray
    deltas: np.ndarray


def scaled(ledger: Ledger, by: float) -> Ledger:
    """The ledger with all noise so many times as large."""
    more = Ledger()
    for step, times in ledger.entries:
        releases = tuple(
            replace(r, mechanism=_scaled(r.mechanism, by), claimed=None) for r in step.releases
        )
        more = more.after(Step(step.sampling, releases), times)
    return more


def _scaled(mechanism: Mechanism, by: float) -> Mechanism:
    if isinstance(mechanism, GaussianMechanism | CoordinateMechanism):
        return replace(mechanism, noise_multiplier=mechanism.noise_multiplier * by)
    return mechanism


@lru_cache(maxsize=512)
def profiles(ledger: Ledger, delta: float) -> tuple[Lines, Lines]:
    """The privacy profile of the law with an example against that without it, and the other way
    round."""
    entries, _ = deduct_failures(list(joint_entries(ledger)), delta)
    steps = [Steps(_profile(entry), entry.rate, entry.times) for entry in entries]
    return _lines(steps, True), _lines(steps, False)


def _profile(entry: Entry) -> SymmetricProfile:
    if isinstance(entry.joint, CoordinateMechanism):
        return profile(entry.joint)
    return GaussianProfile(1 / entry.joint)


def _lines(steps: list[Steps], removing: bool) -> Lines:
    total = sum_of_losses(steps, USUAL_DELTA, removing)
    epsilons = np.linspace(0, min(total.epsilon(LEAST_DELTA), LARGEST_EPSILON), LINES)
    return Lines(epsilons, total.deltas(epsilons, total.tilted(total.best_tilt(USUAL_DELTA))))


def least_miss_rate(ledger: Ledger, false_alarms: float, delta: float) -> float:
    """The smallest share of included canaries that is missed by any attack on the ledger with so
    large a share of false alarms."""
    present, absent = profiles(ledger, delta)
    below = 1 - present.deltas - np.exp(present.epsilons) * false_alarms
    beyond = (1 - absent.deltas - false_alarms) * np.exp(-absent.epsilons)
    return max(0.0, float(below.max()), float(beyond.max()))
