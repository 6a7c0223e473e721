"""Tight epsilons of many steps: never below what is exactly spent, and hardly above."""

import math
import tracemalloc

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from dpbench.privacy.coordinates import CoordinateProfile, profile
from dpbench.privacy.gaussian import GaussianProfile, exact_epsilon
from dpbench.privacy.ledger import CoordinateMechanism
from dpbench.privacy.tight import Steps, tight_epsilon

# Without sampling, any number of Gaussian steps is one whose epsilon is known.


@pytest.mark.parametrize(
    ("times", "mu", "delta"),
    [
        (1, 1.0, 1e-5),
        (100, 10.0, 1e-13),
        (100_000, 10.0, 1e-13),  # where PLDs of dp_accounting 0.6 say 118.74, and 122.74 is spent
        (100_000, 10.0, 1e-15),  # and here infinity
        (100_000, 10.0, 1e-40),
        (10_000, 0.1, 1e-5),
        (10_000, 1.0, 0.2),
        (1_000_000, 1.0, 1e-9),
    ],
)
def test_composed_gaussian_steps_are_never_below_the_exact_epsilon(times, mu, delta):
    exact = exact_epsilon(mu, delta)
    ours = tight_epsilon([Steps(GaussianProfile(mu / times**0.5), 1.0, times)], delta)
    assert exact * (1 - 1e-11) <= ours <= exact * (1 + 1e-3)


# Two answers, sampled: the loss of many steps is a binomial.


def randomised_response(truth: float) -> CoordinateProfile:
    """Delta is p - (1 - p) e^epsilon, a straight line."""
    ends = np.array([0.0, math.log(truth / (1 - truth))])
    return CoordinateProfile(ends, np.array([2 * truth - 1, 0.0]), rounding=1e-15)


def binomial_delta(truth: float, rate: float, times: int, epsilon: float, removing: bool):
    with mpmath.workdps(50):
        p, q = mpmath.mpf(truth), mpmath.mpf(rate)
        mixed = (1 - q) * (1 - p) + q * p  # that the answer is the example's
        above, below = mpmath.log(mixed / (1 - p)), mpmath.log((1 - mixed) / p)
        if removing:
            share = mixed
        else:
            above, below, share = -below, -above, p
        needed = math.floor((epsilon - times * below) / (above - below)) + 1
        term = mpmath.binomial(times, needed) * share**needed * (1 - share) ** (times - needed)
        total = mpmath.mpf(0)
        for ups in range(needed, times + 1):
            loss = ups * above + (times - ups) * below
            total += term * (1 - mpmath.exp(epsilon - loss))
            term *= mpmath.mpf(times - ups) / (ups + 1) * share / (1 - share)
            if term < total * mpmath.mpf(10) ** -25:
                break
        return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "rate", "times"), [(0.9, 0.02, 300), (0.6, 0.5, 2000), (0.75, 0.01, 100_000)]
)
@pytest.mark.parametrize("delta", [1e-5, 1e-14, 1e-30])
def test_composed_randomised_responses_are_never_below_the_binomial(truth, rate, times, delta):
    epsilon = tight_epsilon([Steps(randomised_response(truth), rate, times)], delta)
    spent = [max(binomial_delta(truth, rate, times, e, way) for way in (True, False))
             for e in (epsilon, epsilon * 0.998)]  # fmt: skip
    assert spent[0] <= delta * (1 + 1e-12)
    assert spent[1] > delta


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2, 5, 20])
@pytest.mark.parametrize("rate", [0.3, 1.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_few_answers_have_a_likely_largest_loss_and_are_not_bounded_by_it(times, rate, delta):
    epsilon = tight_epsilon([Steps(randomised_response(0.8), rate, times)], delta)
    assert max(binomial_delta(0.8, rate, times, epsilon, way) for way in (True, False)) <= delta
    if epsilon:
        less = epsilon * (1 - 1e-3)
        assert max(binomial_delta(0.8, rate, times, less, way) for way in (True, False)) > delta


@pytest.mark.parametrize("law", ["laplace", "logistic"])
@pytest.mark.parametrize("dimension", [2, 10])
def test_one_release_of_bounded_losses_has_the_epsilon_of_its_profile(law, dimension):
    found = profile(CoordinateMechanism(law, 1.5, dimension))
    epsilons = np.linspace(0.3, 0.95, 5) * dimension**0.5 / 1.5
    for epsilon, delta in zip(epsilons, found.at(epsilons), strict=True):
        ours = tight_epsilon([Steps(found, 1.0, 1)], float(delta))
        assert epsilon * (1 - 1e-9) <= ours <= epsilon * (1 + 1e-3)


# Two sampled Gaussian steps: one integral over a closed form.


def two_steps(mu: float, rate: float, epsilon: float) -> mpmath.mpf:
    """E_P[delta_1(epsilon - L)] of the first step, for removing an example."""
    with mpmath.workdps(30):
        m, q, e = mpmath.mpf(mu), mpmath.mpf(rate), mpmath.mpf(epsilon)

        def loss(x):
            return mpmath.log(1 - q + q * mpmath.exp(m * x - m * m / 2))

        def one(left):
            if left <= mpmath.log(1 - q):
                return 1 - mpmath.exp(left)
            x = mpmath.log(1 + mpmath.expm1(left) / q) / m + m / 2
            p = (1 - q) * mpmath.ncdf(-x) + q * mpmath.ncdf(m - x)
            return p - mpmath.exp(left) * mpmath.ncdf(-x)

        def weighted(x):
            return ((1 - q) * mpmath.npdf(x) + q * mpmath.npdf(x - m)) * one(e - loss(x))

        ends = [-16, -6, -3, 0, 1.5, 3, 4.5, 6, 7.5, 9, 11, 13, 20]
        return mpmath.quad(weighted, ends, maxdegree=7)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-4, 1e-13, 1e-25])
@pytest.mark.parametrize(("mu", "rate"), [(1.0, 0.1), (0.5, 0.9)])
def test_two_sampled_steps_agree_with_the_integral(mu, rate, delta):
    epsilon = tight_epsilon([Steps(GaussianProfile(mu), rate, 2)], delta)
    assert two_steps(mu, rate, epsilon) <= delta * (1 + 1e-9)
    assert two_steps(mu, rate, epsilon * 0.9999) > delta


# Against another library, where delta is not tiny.


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "rate", "times", "delta"),
    [
        (1.0, 0.02, 300, 1e-5),
        (0.6, 0.02, 300, 1e-5),
        (1.0, 0.02, 1, 1e-5),
        (0.8, 1 / 214, 12_840, 1e-6),
        (0.5, 0.3, 100, 1e-4),
        (1.0, 0.02, 10_000, 0.3),
        (5.0, 0.02, 300, 1e-5),
    ],
)
def test_epsilon_agrees_with_dp_accounting(sigma, rate, times, delta):
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    theirs = PLDAccountant().compose(event, times).get_epsilon(delta)
    ours = tight_epsilon([Steps(GaussianProfile(1 / sigma), rate, times)], delta)
    assert ours == pytest.approx(theirs, rel=5e-5)


def test_short_losses_are_hardly_rounded_up_and_no_fall_to_delta_has_no_epsilon():
    ours = tight_epsilon([Steps(GaussianProfile(0.1), 1e-3, 10_000)], 1e-5)
    theirs = PLDAccountant(value_discretization_interval=2e-6).compose(
        dp_accounting.PoissonSampledDpEvent(1e-3, dp_accounting.GaussianDpEvent(10.0)), 10_000
    )
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-3)
    leaky = CoordinateProfile(np.array([0.0, 1.0]), np.array([0.5, 1e-6]))
    assert tight_epsilon([Steps(leaky, 1.0, 20)], 1e-5) == math.inf


@pytest.mark.slow
def test_several_kinds_of_steps_add_up():
    one, other = Steps(GaussianProfile(1.0), 0.02, 200), Steps(GaussianProfile(0.4), 0.1, 50)
    theirs = PLDAccountant()
    for steps in (one, other):
        event = dp_accounting.GaussianDpEvent(1 / steps.profile.mu)
        theirs.compose(dp_accounting.PoissonSampledDpEvent(steps.rate, event), steps.times)
    assert tight_epsilon([one, other], 1e-6) == pytest.approx(theirs.get_epsilon(1e-6), rel=5e-5)


# Size.


@pytest.mark.slow
def test_no_budget_exceeds_the_memory_limit_of_a_grid():
    tracemalloc.start()
    epsilons = [
        tight_epsilon([Steps(GaussianProfile(mu), 0.9, times)], 1e-5)
        for mu, times in ((1 / 0.3, 1_000_000), (1 / 0.02, 1))
    ]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400 * 2**20
    assert all(math.isfinite(epsilon) for epsilon in epsilons)
