"""The note's formula, against its own text."""

import math

import numpy as np
import pytest

from dpbench.privacy.ledger import CoordinateMechanism
from dpbench.privacy.paper_epsilons import note_epsilon

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


# The inequalities of section 2, x standing for G sigma.

XS = np.geomspace(1e-3, 5, 60)
MOMENTS = np.arange(1, 65)[:, None]


def moment(x: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """alpha of one coordinate, as section 2.1 has it."""
    return np.logaddexp(lam * x + x / 2, -lam * x - x / 2) - np.logaddexp(x / 2, -x / 2)


def test_the_moment_is_bounded_and_terms_beyond_second_order_are_not_negligible():
    assert (moment(XS, MOMENTS) <= MOMENTS * XS).all()
    # The note has "N/A" for them, but without them the sum is below the moment.
    x, lam = 0.5, 32
    assert moment(np.array(x), np.array(lam)) > math.log(1 + lam * (lam + 1) * x**2)


def test_the_third_inequality_of_the_other_bound_has_a_condition_and_its_conclusion_none():
    """The note's condition, 2 < exp(x^2/2), suffices for all lambda, and lambda = 1 needs it."""
    lam_x = MOMENTS * XS
    first, second = np.logaddexp(lam_x, -lam_x), math.log(2) + lam_x**2 / 2
    conclusion = MOMENTS * (MOMENTS + 1) * XS**2 / 2
    assert (moment(XS, MOMENTS) < first).all()
    assert (first <= second).all()
    condition = np.exp(XS**2 / 2) > 2
    assert (second <= conclusion)[:, condition].all()
    assert not (second <= conclusion)[0, ~condition].any()
    assert (moment(XS, MOMENTS) <= conclusion * (1 + 1e-9)).all()


def test_the_second_order_term_is_as_printed_and_bounded_only_for_small_x():
    p, q = (1 / (1 + np.exp(sign * XS)) for sign in (-1, 1))
    squares = (p - q) ** 2 / q + (q - p) ** 2 / p
    assert squares == pytest.approx((np.exp(XS / 2) - np.exp(-XS / 2)) ** 2, rel=1e-9)
    assert squares == pytest.approx(np.expm1(XS) + np.expm1(-XS), rel=1e-6)
    small, middle = XS <= 1, 2 * np.expm1(XS**2 / 2)
    assert (squares <= middle * (1 + 1e-9)).all()
    assert (middle <= 2 * XS**2)[small].all()
    assert (squares > 2 * XS**2).any()
