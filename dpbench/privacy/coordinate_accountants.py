"""Epsilons of noise on each coordinate and of its sign: by Rényi divergences, and by profiles.

An entry is (rate, mechanism, times), as in the ledger.
"""

from collections.abc import Callable, Sequence

import numpy as np

from dpbench.privacy.coordinate_moments import log_moments, removed_moments
from dpbench.privacy.coordinate_profiles import CoordinateProfile, profile, signs, symmetric_place
from dpbench.privacy.ledger import CoordinateMechanism
from dpbench.privacy.tight import Steps, tight_epsilon

CoordinateEntry = tuple[float, CoordinateMechanism, int]


def renyi(entries: Sequence[CoordinateEntry], orders: np.ndarray) -> np.ndarray:
    """The Rényi divergences of all steps at orders > 1 [K]: upper bounds, adding and removing."""
    total = np.zeros(len(orders))
    for rate, mechanism, times in entries:
        total += times * np.maximum(
            removed_moments(mechanism, rate, orders), _added_moments(mechanism, rate, orders)
        )
    return total / (orders - 1)


def _added_moments(mechanism: CoordinateMechanism, rate: float, orders: np.ndarray) -> np.ndarray:
    """Log moments for adding: by the profile for signs; 0 where removing is known to cost more.

    Removing costs more for a pair that a reflection swaps (Mironov, Talwar and Zhang 2019, Theorem
    5), hence for additive symmetric noise, but not for signs at a given place.
    """
    if not mechanism.signed or rate == 1:
        return np.zeros(len(orders))
    return profile(mechanism).added_moments(rate, orders)


def equivalent_sigma(mechanism: CoordinateMechanism) -> float:
    """The noise multiplier of the Gaussian mechanism with the same chi-squared divergence.

    The central-limit approximation of Bu et al. 2020 depends on that divergence alone.
    """
    return float(log_moments(mechanism, np.array([2.0]))[0]) ** -0.5


def steps_of(
    entries: Sequence[CoordinateEntry],
    profile_of: Callable[[CoordinateMechanism], CoordinateProfile] = profile,
) -> list[Steps]:
    """The steps with the profile of each: upper bounds."""
    return [Steps(profile_of(mechanism), rate, times) for rate, mechanism, times in entries]


def symmetric_epsilon(entries: Sequence[CoordinateEntry], delta: float) -> float:
    """The epsilon of the symmetric pair of a sign in every step: a lower bound of the true epsilon.

    Only for signs of logistic noise; the pair reduces to two binomial distributions.
    """
    steps = steps_of(entries, lambda m: signs(m.dimension, m.shift, symmetric_place))
    return tight_epsilon(steps, delta)
