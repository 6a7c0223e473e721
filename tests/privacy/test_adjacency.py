"""Epsilons of other adjacencies, against exact divergences and other libraries."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import norm

from dpbench.privacy.accountants import pld
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import (
    Exact,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
    TruncatedPoisson,
)
from dpbench.privacy.profiles import replace_one_epsilon

DELTA = 1e-5


def trained(rate, sigma, steps):
    release = Release("gradient sum", GaussianMechanism(sigma))
    return Ledger().after(Step(Poisson(rate), (release,)), steps)


@pytest.mark.parametrize(("sigma", "steps"), [(1.0, 1), (4.0, 10), (30.0, 100)])
def test_without_sampling_it_covers_twice_the_sensitivity_and_little_more(sigma, steps):
    exact = privacy_loss_distribution.from_gaussian_mechanism(
        sigma / math.sqrt(steps), sensitivity=2.0
    ).get_epsilon_for_delta(DELTA)
    assert exact <= replace_one_epsilon(trained(1.0, sigma, steps), DELTA) <= 1.35 * exact


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 0.6), (0.1, 1.0), (0.5, 2.0)])
def test_one_sampled_step_never_leaks_more(rate, sigma):
    """Against the exact divergence of a step in which the example's gradient turns around."""
    epsilon = replace_one_epsilon(trained(rate, sigma, 1), DELTA)
    x = np.linspace(-40 * sigma, 40 * sigma, 2_000_001)
    rest = (1 - rate) * norm.pdf(x, 0, sigma)
    first, second = rest + rate * norm.pdf(x, 1, sigma), rest + rate * norm.pdf(x, -1, sigma)
    leaked = np.trapezoid(np.maximum(first - math.exp(epsilon) * second, 0), x)
    assert leaked <= DELTA


@pytest.mark.sampled(10)
@pytest.mark.parametrize("limit", [1, 2, 4])
@pytest.mark.parametrize("places", [*itertools.product((1.0, -1.0), repeat=3)])
def test_an_empty_place_in_a_step_whose_batch_is_cut_never_leaks_more(limit, places):
    """Against the exact divergence over all batches of one example and three others.

    places: the others' gradients. The example has 1, or leaves its place empty.
    """
    rate, sigma, x = 0.4, 1.0, np.linspace(-15, 15, 200_001)
    sampled = TruncatedPoisson(rate, limit, 4)
    step = Step(sampled, (Release("gradient sum", GaussianMechanism(sigma)),))
    epsilon = pld(Ledger().after(step), DELTA)
    present, empty = (density((one, *places), rate, limit, sigma, x) for one in (1.0, 0.0))
    for first, second in ((present, empty), (empty, present)):
        leaked = np.trapezoid(np.maximum(first - math.exp(epsilon) * second, 0), x)
        assert leaked <= DELTA


def density(gradients, rate, limit, sigma, x):
    """Of the noisy sum of a Poisson sample, of which at most `limit` examples are kept."""
    total = np.zeros_like(x)
    for drawn in itertools.product((False, True), repeat=len(gradients)):
        batch = [g for g, inside in zip(gradients, drawn, strict=True) if inside]
        kept = list(itertools.combinations(batch, min(limit, len(batch))))
        weight = math.prod(rate if inside else 1 - rate for inside in drawn) / len(kept)
        total += weight * sum(norm.pdf(x, sum(some), sigma) for some in kept)
    return total


@pytest.mark.parametrize("steps", [10, 1000])
def test_replacement_costs_more_than_a_removal_and_less_than_group_privacy(steps):
    book = trained(0.01, 1.0, steps)
    one = pld(book, DELTA)
    half = pld(book, DELTA / (1 + math.exp(one)))
    assert one < replace_one_epsilon(book, DELTA)
    assert replace_one_epsilon(book, DELTA) <= 2 * pld(book, DELTA / (1 + math.exp(half))) * 1.001


def test_a_ledger_with_an_exact_release_has_none():
    book = Ledger().after(Step(Poisson(0.1), (Release("count", Exact()),)))
    with pytest.raises(Unaccountable, match="no privacy profile"):
        replace_one_epsilon(book, DELTA)


@pytest.mark.parametrize("sigma", [0.38, 0.194])
def test_an_epsilon_that_is_useless_has_a_replacement_all_the_same(sigma):
    """Delta has to be so small for it that noise, as it is drawn, ends before."""
    book = trained(1 / 6, sigma, 120)
    assert 90 < pld(book, DELTA) < math.inf
    with np.errstate(all="raise", under="ignore"):
        assert pld(book, DELTA) < replace_one_epsilon(book, DELTA)
