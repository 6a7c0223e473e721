"""The trade-off between an attacker's false positives and false negatives that a ledger allows."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpbench.privacy.accountants import steps_of
from dpbench.privacy.entries import deduct_failures, joint_entries
from dpbench.privacy.ledger import Exact, Ledger, Mechanism, Step
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


def scaled_noise(ledger: Ledger, factor: float) -> Ledger:
    """The ledger with all of its noise multiplied by a factor."""
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
def profiles(ledger: Ledger, delta: float) -> tuple[PrivacyProfile, PrivacyProfile]:
    """The privacy profiles of removing an example and of adding one."""
    entries, _ = deduct_failures(list(joint_entries(ledger)), delta)
    steps = steps_of(entries)
    return _privacy_profile(steps, True), _privacy_profile(steps, False)


def _privacy_profile(steps: list[Steps], removing: bool) -> PrivacyProfile:
    total = sum_of_losses(steps, TYPICAL_DELTA, removing)
    epsilons = np.linspace(0, min(total.epsilon(MIN_DELTA), LARGEST_EPSILON), POINTS)
    return PrivacyProfile(
        epsilons, total.deltas(epsilons, total.tilted(total.best_tilt(TYPICAL_DELTA)))
    )


def least_fnr(ledger: Ledger, fpr: float, delta: float) -> float:
    """The smallest false negative rate of any attack on the ledger at a false positive rate."""
    present, absent = profiles(ledger, delta)
    below = 1 - present.deltas - np.exp(present.epsilons) * fpr
    beyond = (1 - absent.deltas - fpr) * np.exp(-absent.epsilons)
    return max(0.0, float(below.max()), float(beyond.max()))
