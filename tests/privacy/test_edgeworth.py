"""The Edgeworth accountant: its cumulants and series against plain references, and our PLD."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from dpbench.privacy.accountants import edgeworth, gdp, pld_of_reals
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.gaussian import exact_epsilon
from dpbench.privacy.ledger import (
    CoordinateMechanism,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
)
from dpbench.privacy.paper_epsilons import expansion_epsilon, loss_cumulants, survival

DELTA = 1e-5


def ledger(rate: float, sigma: float, steps: int) -> Ledger:
    return Ledger().after(Step(Poisson(rate), (Release("x", GaussianMechanism(sigma)),)), steps)


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (0.3, 0.7), (1.0, 2.0)])
def test_cumulants_are_those_of_numerical_integration(rate, sigma):
    def loss(x):
        return math.log(1 - rate + rate * math.exp(x / sigma - 1 / (2 * sigma**2)))

    def density(x, member):
        with_example = (1 - rate) * stats.norm.pdf(x) + rate * stats.norm.pdf(x, 1 / sigma)
        return with_example if member else stats.norm.pdf(x)

    def moment(order, mean, member):
        return quad(lambda x: (loss(x) - mean) ** order * density(x, member), -15, 15, limit=200)[0]

    def cumulants(member):
        mean = moment(1, 0, member)
        second, third, fourth = (moment(order, mean, member) for order in (2, 3, 4))
        return [mean, second, third, fourth - 3 * second**2]

    for member, found in enumerate(loss_cumulants(rate, sigma)):
        assert found == pytest.approx(cumulants(member), rel=1e-5, abs=1e-10)


def test_the_series_has_the_error_of_its_order():
    """Sums of n exponential variables are known exactly; the error of second order is n^(-3/2)."""
    errors = []
    for n in (25, 100):
        x = n + math.sqrt(n) * np.linspace(-3, 3, 61)
        exact = stats.gamma(n).sf(x)
        found = survival(n * np.array([1.0, 1.0, 2.0, 6.0]), x)
        errors.append(np.abs(found - exact).max())
        assert errors[-1] < np.abs(stats.norm.sf(x, n, math.sqrt(n)) - exact).max() / 20
    assert errors[0] / errors[1] == pytest.approx(8, rel=0.3)


def test_it_is_exact_for_a_gaussian():
    assert edgeworth(ledger(1.0, 35.0, 2000), DELTA) == pytest.approx(
        exact_epsilon(math.sqrt(2000) / 35, DELTA), rel=1e-6
    )


@pytest.mark.parametrize(
    ("rate", "sigma", "steps"), [(0.0043, 1.12, 14040), (0.02, 1.54, 1440), (0.08, 3.0, 2500)]
)
def test_it_is_three_times_closer_to_pld_than_the_central_limit(rate, sigma, steps):
    book = ledger(rate, sigma, steps)
    spent = pld_of_reals(book, DELTA)
    assert abs(edgeworth(book, DELTA) - spent) < abs(gdp(book, DELTA) - spent) / 3


def test_it_is_no_bound_and_the_larger_direction_counts():
    book = ledger(0.005, 0.5, 2030)
    assert edgeworth(book, DELTA) < 0.9 * pld_of_reals(book, DELTA)
    # The pair of the other direction has the epsilon of the same mechanism.
    under_p, under_q = cumulants = 1840 * loss_cumulants(1 / 92, 1.0)
    mirrored = np.array([under_q, under_p]) * [-1, 1, -1, 1]
    found = expansion_epsilon(cumulants, 1e-6)
    assert found == expansion_epsilon(mirrored, 1e-6)
    assert found == edgeworth(ledger(1 / 92, 1.0, 1840), 1e-6)
    assert found == pytest.approx(pld_of_reals(ledger(1 / 92, 1.0, 1840), 1e-6), rel=0.05)


def test_there_is_no_epsilon_for_other_noise_or_where_the_series_breaks_down():
    with pytest.raises(Unaccountable, match="crosses this one 3 times"):
        edgeworth(ledger(32 / 550152, 0.4, 54076), 1 / 550152)
    signs = Release("x", CoordinateMechanism("logistic", 1.0, 100, signed=True))
    with pytest.raises(Unaccountable, match="Gaussian noise on Poisson samples"):
        edgeworth(Ledger().after(Step(Poisson(0.1), (signs,)), 10), DELTA)
