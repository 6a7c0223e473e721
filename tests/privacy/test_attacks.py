"""Bounds of attacks, against closed forms, the optimal attack by integration, and dp_accounting."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
from scipy.stats import norm

from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.privacy.profiles import CANDIDATES, FALSE_POSITIVES, attack_bounds

DELTA = 1e-5


def trained(rate, sigma, steps):
    release = Release("gradient sum", GaussianMechanism(sigma))
    return Ledger().after(Step(Poisson(rate), (release,)), steps)


def bounds(rate, sigma, steps):
    return attack_bounds({"pld": 1.0, "delta": DELTA}, trained(rate, sigma, steps))


def gaussian(sigma, false_positives):
    """The true-positive rate of the best test of N(0, sigma^2) against N(1, sigma^2)."""
    return norm.cdf(norm.ppf(false_positives) + 1 / sigma)


@pytest.mark.parametrize(("sigma", "steps"), [(0.7, 1), (1.0, 1), (5.0, 20), (30.0, 100)])
def test_without_sampling_they_are_those_of_a_gaussian(sigma, steps):
    found, whole = bounds(1.0, sigma, steps), sigma / math.sqrt(steps)
    advantage = 2 * norm.cdf(1 / (2 * whole)) - 1
    assert advantage <= found["membership_advantage"] <= advantage + 1e-4
    for name, rate in (("true_positive_rate", FALSE_POSITIVES), ("reconstruction", 1 / CANDIDATES)):
        exact = gaussian(whole, rate)
        assert exact <= found[name] <= 1.01 * exact + 2 * DELTA


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 0.6), (0.1, 1.0), (0.5, 2.0)])
@pytest.mark.parametrize("removed", [True, False])
def test_no_attack_on_a_sampled_step_does_better(rate, sigma, removed):
    """The likelihood-ratio test of both directions, by integration over the output."""
    x = np.linspace(-12 * sigma, 12 * sigma + 1, 2_000_001)
    step = x[1] - x[0]
    without = norm.pdf(x, 0, sigma) * step
    with_it = (1 - rate) * without + rate * norm.pdf(x, 1, sigma) * step
    null, alternative = (without, with_it) if removed else (with_it, without)
    order = np.argsort(-(alternative / null))
    false, true = np.cumsum(null[order]), np.cumsum(alternative[order])
    found = bounds(rate, sigma, 1)
    assert (true - false).max() <= found["membership_advantage"]
    for name, at in (("true_positive_rate", FALSE_POSITIVES), ("reconstruction", 1 / CANDIDATES)):
        assert true[np.searchsorted(false, at) - 1] <= found[name]


@pytest.mark.parametrize(("rate", "sigma", "steps"), [(0.01, 0.8, 1000), (0.05, 2.0, 400)])
def test_the_advantage_is_delta_at_epsilon_0_of_dp_accounting(rate, sigma, steps):
    accountant = pld_privacy_accountant.PLDAccountant()
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma))
    accountant.compose(dp_event.SelfComposedDpEvent(event, steps))
    theirs = accountant.get_delta(0.0)
    assert bounds(rate, sigma, steps)["membership_advantage"] == pytest.approx(theirs, rel=5e-3)


def test_attacks_are_far_below_epsilon_alone_and_without_privacy_certain():
    found = bounds(0.01, 0.8, 1000)
    assert found["reconstruction"] < found["true_positive_rate"] < found["membership_advantage"]
    assert found["membership_advantage"] < 0.5 * math.tanh(2.0)
    assert set(attack_bounds({"pld": math.inf, "delta": DELTA}, Ledger()).values()) == {1.0}
    assert attack_bounds({"pld": None, "delta": DELTA}, Ledger()) is None
