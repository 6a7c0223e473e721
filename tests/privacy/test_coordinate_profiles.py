"""Privacy profiles, against enumeration, integrals, dp_accounting and mpmath: never below, hardly
above."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit, logsumexp

from dpbench.privacy.coordinates import (
    ROUNDING,
    at_count,
    profile,
    signs,
    supremum_over_places,
    symmetric_place,
)
from dpbench.privacy.gaussian import GaussianProfile
from dpbench.privacy.ledger import CoordinateMechanism

cheap = settings(derandomize=True, deadline=None, max_examples=25)


def noise(law: str, shift: float, dimension: int = 1, signed: bool = False) -> CoordinateMechanism:
    return CoordinateMechanism(law, 1 / (shift * dimension**0.5), dimension, signed)


def hockey_stick(log_p: np.ndarray, log_q: np.ndarray, epsilon: float) -> float:
    return float(np.clip(np.exp(log_p) - np.exp(epsilon + log_q), 0, None).sum())


def of_bits(places: np.ndarray, shifts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities [2^d] of all answers with and without the example."""
    answers = np.array(list(itertools.product([-1, 1], repeat=len(places))))
    return tuple(np.log(expit(answers * (places + m))).sum(1) for m in (shifts, np.zeros(1)))


def of_count(dimension: int, shift: float, place: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities [d + 1] of the number of ones."""
    ones = np.arange(dimension + 1)
    return tuple(stats.binom.logpmf(ones, dimension, expit(x)) for x in (place + shift, place))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dimension", [1, 2, 7, 60])
@pytest.mark.parametrize("shift", [0.05, 0.6, 2.5])
def test_signs_have_the_profile_of_the_worst_position(dimension, shift):
    places = np.concatenate([np.linspace(-9 - shift, 9, 600), np.linspace(-2 - shift, 2, 600)])
    pairs = [of_count(dimension, shift, place) for place in places]
    for epsilon in np.array([0, 0.1, 0.5, 0.9]) * min(
        dimension * shift, 4 * dimension**0.5 * shift
    ):
        worst = max(hockey_stick(p, q, epsilon) for p, q in pairs)
        (ours,) = profile(noise("logistic", shift, dimension, True)).at(np.array([epsilon]))
        assert worst <= ours
        assert ours <= worst * 1.01 + 1e-7


def worst_of_signs(dimension: int, shift: float, epsilon: float) -> mpmath.mpf:
    """The exact profile: the best place of each count, as in Dong, Durfee and Rogers 2020."""
    deltas = []
    with mpmath.workdps(400):
        shift, epsilon = mpmath.mpf(shift), mpmath.mpf(epsilon)
        for most in range(dimension):
            t = max(min((epsilon + (most + 1) * shift) / (dimension + 1), shift), 0)
            p, q = (
                mpmath.expm1(s * t) / mpmath.expm1(s * shift)
                for s in (mpmath.mpf(1), mpmath.mpf(-1))
            )
            with_it, without = (
                sum(
                    mpmath.binomial(dimension, k) * x**k * (1 - x) ** (dimension - k)
                    for k in range(most + 1)
                )
                for x in (p, q)
            )
            deltas.append(with_it - mpmath.exp(epsilon) * without)
        return max(deltas)


@pytest.mark.long
@given(st.integers(1, 24), st.floats(1, 45), st.floats(0, 0.999))  # nearer to 1, digits are lost
@example(1, 38.0, 0.99)  # without the digits of 1 - q, epsilon was 36.22 for 37.98 at delta 1e-4
@example(20, 36.0, 0.98)  # 688.2 for 698
@example(24, 40.0, 0.95)  # where exp(epsilon) is no number
@settings(derandomize=True, deadline=None, max_examples=40)
def test_signs_with_hardly_any_noise_have_the_exact_profile_at_any_size(dimension, shift, share):
    have_the_exact_profile(dimension, shift, share)


@pytest.mark.parametrize(("dimension", "shift", "share"), [(1, 38.0, 0.99), (3, 36.0, 0.98)])
def test_signs_with_hardly_any_noise_have_the_exact_profile(dimension, shift, share):
    have_the_exact_profile(dimension, shift, share)


def have_the_exact_profile(dimension, shift, share):
    epsilon = share * dimension * shift
    worst = worst_of_signs(dimension, shift, epsilon)
    (ours,) = signs(dimension, shift, supremum_over_places).at(np.array([epsilon]))
    assert worst <= ours * (1 + ROUNDING)
    (exact,) = supremum_over_places(dimension, shift, np.array([epsilon]))
    if epsilon < 600:  # beyond, a term is left out that makes it smaller
        assert exact == pytest.approx(float(worst), rel=1e-9, abs=1e-200)


@pytest.mark.parametrize("dimension", [60, 100_000_000])
def test_a_count_has_the_probability_that_the_binomial_distribution_says(dimension):
    """scipy's bdtr is wrong by a fifth in the middle of the second one."""
    shift = 4 / math.sqrt(dimension)
    zeros = np.floor(dimension / 2 + np.array([-2.0, 0.0, 2.0]) * math.sqrt(dimension) / 2)
    half = np.full(3, shift / 2)
    with_it, without = stats.binom.cdf(zeros, dimension, expit(np.array([[-1], [1]]) * shift / 2))
    found = at_count(dimension, shift, np.zeros(3), zeros, half)
    assert found == pytest.approx(with_it - without, rel=1e-6)


@given(
    st.lists(st.tuples(st.floats(-4, 4), st.floats(-1, 1)), min_size=3, max_size=3),
    st.floats(0.05, 2),
    st.floats(0, 3),
)
@cheap
def test_no_places_and_no_shifts_of_coordinates_are_worse_than_common_ones(drawn, shift, epsilon):
    places, shares = (np.array(values) for values in zip(*drawn, strict=True))
    p, q = of_bits(places, shares * shift)
    (ours,) = profile(noise("logistic", shift, 3, True)).at(np.array([epsilon]))
    assert hockey_stick(p, q, epsilon) <= ours + 1e-12
    assert hockey_stick(q, p, epsilon) <= ours + 1e-12


@pytest.mark.parametrize(("dimension", "least"), [(2, 0.9), (10_000, 0.99)])
def test_the_symmetric_pair_is_below_the_worst_and_close_with_many_coordinates(dimension, least):
    shift = 1 / dimension**0.5
    worst = profile(noise("logistic", shift, dimension, True)).deltas[100:900]
    part = signs(dimension, shift, symmetric_place).deltas[100:900] / worst
    assert (part <= 1 + 1e-6).all()
    assert part.min() > least if dimension > 2 else part.min() < least


def test_the_symmetric_pair_is_enumeration():
    p, q = of_count(9, 0.7, -0.35)
    ours = signs(9, 0.7, symmetric_place)
    for epsilon in ours.epsilons[::211]:
        assert ours.at(np.array([epsilon]))[0] == pytest.approx(
            hockey_stick(p, q, epsilon), rel=1e-8, abs=1e-17
        )


LAWS = {"logistic": stats.logistic, "laplace": stats.laplace}


def cells(law, shift: float, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-masses of P and Q on intervals that are so short that little is lost."""
    edges = np.concatenate([[-np.inf], np.linspace(-25, 25 + shift, number - 1), [np.inf]])
    return tuple(np.log(np.diff(LAWS[law].cdf(edges - moved))) for moved in (shift, 0.0))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("shift", [0.3, 2.0])
def test_one_coordinate_is_what_the_integral_says(law, shift):
    p, q = cells(law, shift, 100_000)
    for epsilon in np.array([0, 0.1, 0.4, 0.9]) * shift:
        (ours,) = profile(noise(law, shift)).at(np.array([epsilon]))
        assert ours == pytest.approx(hockey_stick(p, q, epsilon), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("law", LAWS)
def test_two_coordinates_are_what_brute_force_says(law):
    p, q = cells(law, 0.8, 1501)
    joint_p, joint_q = (np.add.outer(one, one).ravel() for one in (p, q))
    for epsilon in (0.0, 0.5, 1.2):
        (ours,) = profile(noise(law, 0.8, 2)).at(np.array([epsilon]))
        theirs = hockey_stick(joint_p, joint_q, epsilon)
        assert theirs * (1 - 1e-5) <= ours <= theirs * (1 + 5e-3)


def test_laplace_is_that_of_dp_accounting_and_no_moment_underflows():
    theirs = privacy_loss_distribution.from_laplace_mechanism(1 / 0.9)
    epsilons = np.linspace(0, 0.9, 10)
    ours = profile(noise("laplace", 0.9)).at(epsilons)
    assert ours == pytest.approx(np.array(theirs.get_delta_for_epsilon(epsilons)), abs=1e-4)
    ours = profile(noise("logistic", 0.1, 1, True)).added_moments(1 - 1e-9, np.array([2000.0]))
    assert ours[0] > 0


EVERY = [
    noise("logistic", 0.2, 25),
    noise("laplace", 0.2, 25),
    noise("logistic", 0.2, 25, True),
    noise("logistic", 1.5, 1, True),
]
every = pytest.mark.parametrize("mechanism", EVERY)


@every
def test_a_profile_is_convex_and_falls(mechanism):
    found = profile(mechanism)
    gamma = np.exp(np.linspace(0, 1.4, 401))
    deltas = found.at(np.log(gamma))
    middles = np.interp((gamma[2:] + gamma[:-2]) / 2, gamma, deltas)
    assert ((deltas[2:] + deltas[:-2]) / 2 >= middles * (1 - 1e-7)).all()
    assert (np.diff(deltas) <= 0).all()


@every
def test_the_last_delta_of_a_profile_is_far_below_any_that_is_asked_for(mechanism):
    assert profile(mechanism).deltas[-1] < 1e-40


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("z", [0.0, 3.0, 9.0, 12.0])
@pytest.mark.parametrize("dimension", [3, 200, 50_000])
def test_one_sign_after_another_is_never_below_mpmath(dimension, z):
    shift = 1 / dimension**0.5
    ours = signs(dimension, shift, symmetric_place)
    (at,) = np.searchsorted(ours.epsilons, [min(z / 2, 0.9 * dimension * shift / 2)])
    epsilon = mpmath.mpf(float(ours.epsilons[at]))
    with mpmath.workdps(40):
        up, down = (1 / (1 + mpmath.exp(-side * mpmath.mpf(shift) / 2)) for side in (1, -1))
        exact = mpmath.mpf(0)
        weight = up**dimension  # of no answer of -1, and then of one more and one more
        for zeros in range(dimension + 1):
            loss = mpmath.mpf(shift) * (mpmath.mpf(dimension) / 2 - zeros)
            if loss <= epsilon:
                break
            exact += weight * (1 - mpmath.exp(epsilon - loss))
            weight *= (dimension - zeros) * down / ((zeros + 1) * up)
        assert abs(ours.deltas[at] / exact - 1) <= ours.rounding


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_many_coordinates_have_the_profile_of_a_gaussian_however_far_out(law):
    information = {"logistic": 1 / 3, "laplace": 1.0}[law]
    ours = profile(CoordinateMechanism(law, 1.0, 4_000_000))
    gaussian = GaussianProfile(information**0.5)
    epsilons = np.array([0.0, 1.0, 3.0, 6.0]) * information**0.5
    assert ours.at(epsilons) == pytest.approx(gaussian.at(epsilons), rel=0.05)
    assert gaussian.at(epsilons)[-1] < 1e-8


@pytest.mark.parametrize(("dimension", "shift"), [(1, 1.5), (12, 0.5), (400, 0.05)])
@pytest.mark.parametrize("rate", [0.02, 0.6])
def test_moments_of_the_other_direction_are_never_below_any_place(dimension, shift, rate):
    orders = np.array([1.5, 3.0, 16.0])
    ours = profile(noise("logistic", shift, dimension, True)).added_moments(rate, orders)
    worst = np.zeros(3)
    for place in np.linspace(-6 - shift, 6, 241):
        p, q = of_count(dimension, shift, place)
        mixed = np.logaddexp(math.log1p(-rate) + q, math.log(rate) + p)
        worst = np.maximum(worst, [logsumexp(order * q + (1 - order) * mixed) for order in orders])
    assert (worst <= ours * (1 + 1e-9) + 1e-13).all()
    assert (ours <= worst * (1.5 if dimension == 1 else 1.1)).all()
