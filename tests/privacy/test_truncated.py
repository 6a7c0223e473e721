"""Poisson samples that are cut: an exact small case, and the event of dp_accounting."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy import integrate, stats

from dpbench.privacy.accountants import ORDERS, _divergences, _other_steps, gdp, pld, rdp
from dpbench.privacy.calibrate import calibrate
from dpbench.privacy.entries import Unaccountable, cut_probability, joint_entries
from dpbench.privacy.ledger import (
    CoordinateMechanism,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
    TruncatedPoisson,
)

RATE, SIGMA = 0.3, 0.8
GRID = np.linspace(-18, 18, 36_001)


def ledger(law, sigma: float, steps: int) -> Ledger:
    return Ledger().after(Step(law, (Release("gradient sum", GaussianMechanism(sigma)),)), steps)


def density(gradients: tuple[int, ...], limit: int) -> np.ndarray:
    """The density of a noisy sum, by all samples and all that may be left of them."""
    total, n = np.zeros_like(GRID), len(gradients)
    for size in range(n + 1):
        for sample in itertools.combinations(gradients, size):
            parts = list(itertools.combinations(sample, min(size, limit)))
            weight = RATE**size * (1 - RATE) ** (n - size) / len(parts)
            total += weight * sum(stats.norm.pdf(GRID, sum(part), SIGMA) for part in parts)
    return total


@pytest.mark.parametrize(("rate", "size", "limit"), [(0.3, 20, 9), (0.02, 50_000, 1300)])
def test_the_others_fill_a_batch_as_often_as_the_binomial_says(rate, size, limit):
    told = cut_probability(TruncatedPoisson(rate, limit, size))
    assert told == pytest.approx(stats.binom.sf(limit - 1, size, rate), rel=1e-9)


def test_a_limit_above_all_examples_cuts_nothing_and_a_forgotten_cut_costs_too_little():
    assert cut_probability(TruncatedPoisson(RATE, 20, 20)) == pytest.approx(RATE**20)
    assert cut_probability(TruncatedPoisson(RATE, 22, 20)) == 0
    with_one, without = density((1, -1, -1, -1), 1), density((-1, -1, -1), 1)
    spent = integrate.trapezoid(np.maximum(with_one - math.e * without, 0), GRID)
    (entry,) = joint_entries(ledger(TruncatedPoisson(RATE, 1, 3), SIGMA, 1))
    forgotten = _other_steps(entry._replace(cut=1e-300)).profile.removal_deltas(np.array([1.0]))[0]
    assert forgotten < spent


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("others", [(-1, -1, -1), (-1, 1, -1), (1, 1, 1)])
def test_a_step_spends_no_more_than_its_profile_and_its_divergences(limit, others):
    with_one, without = density((1, *others), limit), density(others, limit)
    (entry,) = joint_entries(ledger(TruncatedPoisson(RATE, limit, len(others)), SIGMA, 1))
    profile = _other_steps(entry).profile
    for epsilon in (0.0, 0.2, 0.7, 1.5):
        scale, at = math.exp(epsilon), np.array([epsilon])
        remove = integrate.trapezoid(np.maximum(with_one - scale * without, 0), GRID)
        add = integrate.trapezoid(np.maximum(without - scale * with_one, 0), GRID)
        assert remove <= profile.removal_deltas(at)[0] * (1 + 1e-9)
        assert add <= profile.addition_deltas(at)[0] * (1 + 1e-9)
    ours = dict(zip(ORDERS, _divergences(entry), strict=True))
    for order in (1.5, 2.0, 5.0):
        for p, q in ((with_one, without), (without, with_one)):
            moment = integrate.trapezoid(np.exp(order * np.log(p) + (1 - order) * np.log(q)), GRID)
            assert math.log(moment) / (order - 1) <= ours[order] * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "tolerance"), [(100, 0.05), (130, 0.05), (150, 2e-3)])
def test_epsilon_is_that_of_dp_accounting(limit, tolerance):
    """Theirs knows how often the one takes another's place; ours is a bound of that."""
    n, rate, times, sigma = 10_000, 0.01, 100, 1.0
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(n, rate, limit, sigma)
    theirs = PLDAccountant(value_discretization_interval=1e-3)
    theirs.compose(event, times)
    ours = pld(ledger(TruncatedPoisson(rate, limit, n), sigma, times), 1e-5)
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=tolerance)


@pytest.mark.slow
def test_truncation_never_costs_less_than_poisson():
    whole = ledger(Poisson(0.01), 1.0, 200)
    for accountant in (rdp, pld):
        cuts = [
            accountant(ledger(TruncatedPoisson(0.01, limit, 10_000), 1.0, 200), 1e-5)
            for limit in (90, 110, 130, 160, 10_000)
        ]
        assert cuts == sorted(cuts, reverse=True)
        assert cuts[-1] == pytest.approx(accountant(whole, 1e-5), rel=1e-9)
        assert cuts[0] > 2 * cuts[-1]


@pytest.mark.parametrize("accountant", [rdp, pld])
def test_a_batch_that_is_always_cut_costs_as_much_as_half_the_noise_on_all_of_it(accountant):
    cut = accountant(ledger(TruncatedPoisson(1.0, 100, 1_000), 4.0, 10), 1e-5)
    assert cut == pytest.approx(accountant(ledger(Poisson(1.0), 2.0, 10), 1e-5), rel=1e-3)


def test_noise_that_meets_an_epsilon():
    law = TruncatedPoisson(0.01, 140, 10_000)
    sigma = calibrate(lambda sigma: ledger(law, sigma, 200), 2.0, 1e-5, "rdp")
    assert 1.98 < rdp(ledger(law, sigma, 200), 1e-5) <= 2.0


@pytest.mark.parametrize(
    "release",
    [
        Release("gradient sum", CoordinateMechanism("laplace", 1.0, 5)),
        Release("gradient sum", GaussianMechanism(1.0, failure=1e-12)),
        Release("gradient sum", GaussianMechanism(1.0, bands=2)),
        Release("gradient sum", GaussianMechanism(1.0), unsampled=True),
    ],
)
def test_methods_accounted_only_for_poisson_are_refused(release):
    book = Ledger().after(Step(TruncatedPoisson(0.01, 140, 10_000), (release,)), 10)
    for accountant in (rdp, pld):
        with pytest.raises(Unaccountable, match="sampler=poisson"):
            accountant(book, 1e-5)
    with pytest.raises(Unaccountable, match="Poisson samples"):
        gdp(ledger(TruncatedPoisson(0.01, 140, 10_000), 1.0, 200), 1e-5)
