"""Moments of noise on each coordinate and of its sign, against integrals and enumeration."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import LaplaceDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import log_expit

from dpbench.privacy.coordinates import log_moments, removed_moments
from dpbench.privacy.ledger import CoordinateMechanism

ORDERS = np.array([1.5, 2.0, 3.0, 8.0, 33.0])
LAWS = {"logistic": stats.logistic, "laplace": stats.laplace}
cheap = settings(derandomize=True, deadline=None, max_examples=15)


def noise(law: str, shift: float, dimension: int = 1, signed: bool = False) -> CoordinateMechanism:
    return CoordinateMechanism(law, 1 / (shift * dimension**0.5), dimension, signed)


def expected(law: str, shift: float, function) -> float:
    """E_Q[function(r)] by numerical integration, Q at 0 and P at the shift."""
    one = LAWS[law]

    def weighted(x: float) -> float:
        return math.exp(one.logpdf(x)) * function(math.exp(one.logpdf(x - shift) - one.logpdf(x)))

    pieces = [-60, 0, shift, 60 + shift]
    parts = itertools.pairwise(pieces)
    return sum(integrate.quad(weighted, a, b, limit=200, epsabs=1e-13)[0] for a, b in parts)


def renyi_of_bits(x: np.ndarray, y: np.ndarray, order: float) -> np.ndarray:
    """Of Bernoullis with logits x and y."""
    one, other = (order * log_expit(s * x) + (1 - order) * log_expit(s * y) for s in (1, -1))
    return np.logaddexp(one, other) / (order - 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("shift", [0.02, 0.7, 3.0])
def test_moments_agree_with_numerical_integration(law, shift):
    theirs = [math.log(expected(law, shift, lambda r, k=k: r**k)) for k in ORDERS]
    ours = log_moments(noise(law, shift), ORDERS)
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-11)


@pytest.mark.parametrize("shift", [0.1, 2.0])
def test_laplace_is_that_of_dp_accounting(shift):
    event = SelfComposedDpEvent(LaplaceDpEvent(1 / shift), 7)
    theirs = RdpAccountant(ORDERS).compose(event)._rdp
    ours = log_moments(noise("laplace", shift, 7), ORDERS) / (ORDERS - 1)
    assert ours == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize(
    ("shift", "order", "symmetric", "supremum"), [(0.1, 32, 0.0298, 0.0355), (1.0, 8, 0.432, 0.635)]
)
def test_the_symmetric_pair_is_not_the_worst_place_of_a_sign(shift, order, symmetric, supremum):
    half = renyi_of_bits(shift / 2, -shift / 2, order)
    assert half == pytest.approx(symmetric, abs=5e-4)
    (found,) = log_moments(noise("logistic", shift, signed=True), np.array([float(order)]))
    assert found / (order - 1) == pytest.approx(supremum, abs=5e-4)


@given(st.floats(0.01, 4), st.floats(1.1, 60))
@cheap
def test_a_sign_s_moment_is_the_largest_of_all_places(shift, order):
    places = np.linspace(-12 - shift, 12, 40_001)
    largest = max(
        renyi_of_bits(places + shift, places, order).max(),
        renyi_of_bits(places, places + shift, order).max(),
    )
    (ours,) = log_moments(noise("logistic", shift, signed=True), np.array([order])) / (order - 1)
    assert largest <= ours * (1 + 1e-9) + 1e-13
    assert ours <= largest * (1 + 1e-4) + 1e-9


@given(st.floats(0.01, 4), st.floats(1.1, 60))
@cheap
def test_a_sign_tells_no_more_than_the_sum_it_is_of(shift, order):
    signed, whole = (
        log_moments(noise("logistic", shift, signed=signed), np.array([order]))
        for signed in (True, False)
    )
    assert signed <= whole * (1 + 1e-9)


@pytest.mark.parametrize("law", [*LAWS, "sign"])
def test_coordinates_add_up_and_all_of_them_move(law):
    signed, law = law == "sign", "logistic" if law == "sign" else law
    one, many = (log_moments(noise(law, 0.3, d, signed), ORDERS) for d in (1, 50))
    assert many == pytest.approx(50 * one, rel=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_sampled_moments_agree_with_numerical_integration(law, rate):
    shift = 1.5
    ours = removed_moments(noise(law, shift), rate, ORDERS)
    for order, bound in zip(ORDERS, ours, strict=True):
        remove = math.log(expected(law, shift, lambda r, a=order: (1 - rate + rate * r) ** a))
        add = math.log(expected(law, shift, lambda r, a=order: (1 - rate + rate * r) ** (1 - a)))
        assert add <= bound * (1 + 1e-6), "removing costs more"
        assert remove <= bound * (1 + 1e-6)
        if order.is_integer():
            assert bound == pytest.approx(remove, rel=1e-6)


@pytest.mark.parametrize("signed", [True, False])
def test_certain_sampling_is_none(signed):
    mechanism = noise("logistic", 0.4, 30, signed)
    assert np.array_equal(removed_moments(mechanism, 1.0, ORDERS), log_moments(mechanism, ORDERS))
    nearly, whole = removed_moments(mechanism, 1 - 1e-9, ORDERS), ORDERS % 1 == 0
    assert nearly[whole] == pytest.approx(log_moments(mechanism, ORDERS)[whole], rel=1e-6)


@given(st.floats(0.001, 0.9), st.floats(0.05, 1.5), st.floats(1.05, 2))
@cheap
def test_more_examples_and_less_noise_cost_more(rate, shift, more):
    def spent(shift: float, rate: float) -> np.ndarray:
        return removed_moments(noise("logistic", shift, 10, True), rate, ORDERS[ORDERS % 1 == 0])

    assert (spent(shift * more, rate) > spent(shift, rate)).all()
    assert (spent(shift, min(rate * more, 1)) > spent(shift, rate)).all()


@pytest.mark.parametrize(
    ("law", "signed", "information"),
    [("logistic", False, 1 / 3), ("logistic", True, 1 / 4), ("laplace", False, 1)],
)
def test_many_coordinates_cost_what_the_gaussian_of_the_same_information_does(
    law, signed, information
):
    multiplier = 1.3
    mechanism = CoordinateMechanism(law, multiplier, 10**7, signed)
    gaussian = ORDERS * (ORDERS - 1) / 2 * information / multiplier**2
    assert log_moments(mechanism, ORDERS) == pytest.approx(gaussian, rel=2e-2)
