"""Renyi divergences of the sampled Gaussian, and their epsilon, are dp_accounting's to the bit."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant, compute_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.privacy.renyi import sampled_gaussian, smallest_epsilon

ORDERS = (1.01, 1.5, 2.0, 2.7, 10.9, 11.0, 63.0, 256.0, 2048.0)


def theirs(rate: float, sigma: float) -> np.ndarray:
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    return RdpAccountant(ORDERS).compose(event).rdp


# The last two have an order whose series is cut off, and hardly any noise.
@pytest.mark.parametrize(
    ("rate", "sigma"),
    [(0.02, 1.0), (256 / 23_512, 0.8), (0.9, 50.0), (1.0, 0.7), (0.3, 0.4), (0.5, 0.05)],
)
def test_divergences_are_those_of_dp_accounting(rate, sigma):
    found = sampled_gaussian(rate, sigma, ORDERS)
    assert np.array_equal(found, theirs(rate, sigma))
    assert np.isinf(found).any() == ((rate, sigma) == (0.3, 0.4))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # theirs overflow where there is little noise
@given(st.floats(1e-8, 0.999), st.floats(0.01, 1e3))
@settings(derandomize=True, deadline=None, max_examples=20)
def test_divergences_are_those_of_dp_accounting_for_any_rate_and_noise(rate, sigma):
    assert np.array_equal(sampled_gaussian(rate, sigma, ORDERS), theirs(rate, sigma))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(st.floats(1e-4, 0.999), st.floats(0.3, 1e3), st.integers(1, 10**6), st.floats(1e-30, 0.99))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_the_epsilon_is_that_of_dp_accounting(rate, sigma, steps, delta):
    divergences = steps * sampled_gaussian(rate, sigma, ORDERS)
    assert smallest_epsilon(ORDERS, divergences, delta) == compute_epsilon(
        ORDERS, divergences, delta
    )


@pytest.mark.parametrize("divergences", [(np.nan,) * 3, (1.0, np.nan, 2.0)])
def test_divergences_that_are_no_numbers_have_no_epsilon_instead_of_none_at_all(divergences):
    epsilon, _ = smallest_epsilon((1.5, 2.0, 3.0), divergences, 1e-6)
    assert np.isnan(epsilon)
