"""The note's formula, against its own text."""

import math

import numpy as np
import pytest

from dpbench.privacy.ledger import CoordinateMechanism
from dpbench.privacy.sign_note import note_epsilon

LAMBDAS = (1, 2, 5, 20)


def by_hand(n: int, g: float, sigma: float, k: int, q: float, delta: float) -> float:
    """Sections 2.1 and 3 as they stand: G = G_inf q, Logistic(0, 1/(2 sigma)), k steps."""
    g_sigma = g * q * sigma
    p = math.exp(g_sigma / 2) / (math.exp(g_sigma / 2) + math.exp(-g_sigma / 2))
    epsilons = []
    for lam in LAMBDAS:
        alpha = n * math.log(p * math.exp(lam * g_sigma) + (1 - p) * math.exp(-lam * g_sigma))
        epsilons.append((math.log(1 / delta) + k * alpha) / lam)
    return min(epsilons)


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_the_formula_is_the_note_s(rate):
    scale, bound, dimension = 0.8, 0.05, 40
    mechanism = CoordinateMechanism("logistic", scale / (bound * dimension**0.5), dimension, True)
    ours = note_epsilon([(rate, mechanism, 30)], 1e-4, np.array(LAMBDAS) + 1.0)
    theirs = by_hand(dimension, bound, 1 / (2 * scale), 30, rate, 1e-4)
    assert ours == pytest.approx(theirs, rel=1e-12)
