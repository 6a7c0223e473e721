"""The Gaussian mechanism's profile and epsilon, against mpmath and dp_accounting."""

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from dpbench.privacy.gaussian import GaussianProfile, exact_epsilon


def exact(mu: float, epsilon: float) -> mpmath.mpf:
    half, share = mpmath.mpf(mu) / 2, mpmath.mpf(epsilon) / mpmath.mpf(mu)
    return mpmath.ncdf(half - share) - mpmath.exp(epsilon) * mpmath.ncdf(-half - share)


@pytest.mark.parametrize("mu", [1e-4, 1e-2, 0.1, 1.0, 3.0, 10.0, 100.0])
def test_the_profile_is_that_of_mpmath_to_the_stated_rounding(mu):
    profile = GaussianProfile(mu)
    with mpmath.workdps(60):
        for z in np.linspace(0, 37, 100):
            theirs = exact(mu, mu * z)
            (ours,) = profile.at(np.array([mu * z]))
            if theirs > 1e-290:
                assert abs(ours / theirs - 1) <= profile.rounding


@pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 10.0, 3333.0])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-13, 1e-40])
def test_the_exact_epsilon_is_enough_and_hardly_more(mu, delta):
    epsilon = exact_epsilon(mu, delta)
    with mpmath.workdps(60):
        assert exact(mu, epsilon) <= delta
        if epsilon:
            assert exact(mu, epsilon * (1 - 1e-9)) > delta


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.3, 1.0, 4.0])
def test_the_exact_epsilon_is_that_of_dp_accounting(mu):
    theirs = PLDAccountant().compose(dp_accounting.GaussianDpEvent(1 / mu)).get_epsilon(1e-5)
    assert exact_epsilon(mu, 1e-5) == pytest.approx(theirs, rel=1e-6)
