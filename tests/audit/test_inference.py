"""Lower bounds from scores whose true epsilon is known."""

import math

import numpy as np
import pytest
from scipy import stats

from dpbench.audit.inference import (
    Scores,
    _chance,
    bounds,
    family_epsilon,
    gdp_epsilon,
    one_run_epsilon,
    rates_at,
    refutes,
)
from dpbench.audit.tradeoff import least_fnr, scaled_noise
from dpbench.privacy.accountants import pld
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step

DELTA = 1e-3


def ledger(multiplier: float = 1.0, rate: float = 1.0, steps: int = 1) -> Ledger:
    release = Release("gradient sum", GaussianMechanism(multiplier))
    return Ledger().after(Step(Poisson(rate), (release,)), steps)


def gaussian_scores(shift: float, number: int, seed: int) -> Scores:
    """Those of one release in units of its noise."""
    draw = np.random.default_rng(seed)
    included = draw.random(number) < 0.5
    seen = draw.standard_normal(number) + shift * included
    return Scores(shift * seen - shift**2 / 2 if shift else seen, included)


INFERENCES = {
    "own": lambda halves: family_epsilon(*halves, ledger(), DELTA, 0.95),
    "gdp": lambda halves: gdp_epsilon(*halves, DELTA, 0.95),
    "one_run": lambda halves: one_run_epsilon(*halves, DELTA, 0.95),
}


@pytest.mark.slow
@pytest.mark.parametrize(("inference", "audits"), [("gdp", 200), ("one_run", 60), ("own", 20)])
def test_null_scores_prove_nothing(inference, audits):
    """More than an epsilon of 0 in one of twenty audits at most, as 95% confidence says."""
    found = [
        INFERENCES[inference](gaussian_scores(0.0, 2000, seed).halves(seed)) > 0
        for seed in range(audits)
    ]
    assert sum(found) <= stats.binom.ppf(0.999, audits, 0.05)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("multiplier", [1.0, 2.0])
def test_known_gaussian_scores_give_most_of_the_epsilon_and_no_more(multiplier):
    """Of one Gaussian release the family is exact: with 40,000 scores little is lost."""
    scores = gaussian_scores(1 / multiplier, 40_000, seed=3)
    found, true = bounds(scores, ledger(multiplier), DELTA, 0.95, 0), pld(ledger(multiplier), DELTA)
    assert 0.85 * true < found.family < true
    assert 0.85 * true < found.gdp < true
    assert found.one_run < true
    assert not refutes(scores, ledger(multiplier), DELTA, 0)


@pytest.mark.slow
def test_the_bound_is_above_the_truth_no_more_often_than_it_says():
    true = pld(ledger(1.0), DELTA)
    above = [
        gdp_epsilon(*gaussian_scores(1.0, 4000, seed).halves(seed), DELTA, 0.95) > true
        for seed in range(200)
    ]
    assert sum(above) <= stats.binom.ppf(0.99, 200, 0.05)


@pytest.mark.slow
def test_ten_percent_less_noise_is_refuted_and_200_right_audits_raise_no_alarm():
    refuted = [refutes(gaussian_scores(1.0, 4000, s), ledger(1.0), DELTA, s) for s in range(200)]
    assert not any(refuted)
    scores = gaussian_scores(3 / 0.9, 60_000, seed=1)
    assert refutes(scores, ledger(1 / 3), DELTA, 0)
    assert not refutes(gaussian_scores(3.0, 60_000, seed=1), ledger(1 / 3), DELTA, 0)


@pytest.mark.slow
@pytest.mark.parametrize("fpr", [0.001, 0.02, 0.3])
def test_the_trade_off_of_one_gaussian_release_is_that_of_the_likelihood_ratio(fpr):
    """Dong et al. 2022: Phi(Phi^-1(1 - a) - mu)."""
    exact = stats.norm.cdf(stats.norm.isf(fpr) - 2)
    assert least_fnr(ledger(0.5), fpr, DELTA) == pytest.approx(exact, abs=2e-4)


def test_the_trade_off_of_sampled_steps_is_below_what_any_attack_does():
    """The sum of log-likelihood ratios over 40 steps at a rate of 0.1 is the best attack."""
    draw, rate, steps, number = np.random.default_rng(0), 0.1, 40, 40_000
    scores = {}
    for present in (False, True):
        total = np.zeros(number)
        for _ in range(steps):
            seen = draw.standard_normal(number) + (present & (draw.random(number) < rate))
            total += np.log1p(rate * np.expm1(seen - 0.5))
        scores[present] = total
    for threshold in np.quantile(scores[False], [0.7, 0.9, 0.99]):
        alarms, misses = (scores[False] > threshold).mean(), (scores[True] <= threshold).mean()
        least = least_fnr(ledger(1.0, rate, steps), alarms, DELTA)
        assert least == pytest.approx(misses, abs=0.02)


@pytest.mark.slow
def test_more_noise_leaves_an_attack_less():
    rates = [least_fnr(scaled_noise(ledger(1.0, 0.1, 20), by), 0.05, DELTA) for by in (0.5, 1, 2)]
    assert rates == sorted(rates)
    assert rates[0] < rates[1] < rates[2]


def test_limits_are_those_of_clopper_and_pearson_and_all_guesses_right_of_a_binomial():
    values = np.arange(10.0)
    (rates,) = rates_at(Scores(values, values >= 4), np.array([6.5]), 0.9)
    assert rates.fnr == pytest.approx(stats.beta.ppf(0.95, 4, 3))  # 3 of 6
    assert rates.fpr == pytest.approx(1 - 0.05**0.25)  # 0 of 4
    # With delta 0 the chance that 100 guesses are right is p^100, p = e^eps/(1 + e^eps).
    inside = np.arange(400) % 2 == 0
    scores = Scores(np.where(inside, 1.0, -1.0) + np.random.default_rng(0).random(400) / 9, inside)
    share = 0.05 ** (1 / 400)
    found = one_run_epsilon(scores, scores, 0.0, 0.95)
    assert found == pytest.approx(math.log(share / (1 - share)), abs=0.1)


def listed(epsilon, canaries, guesses, right, delta):
    """The p-value as Steinke et al. 2023 list it (appendix D), term by term."""
    law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    steepest = total = 0.0
    for i in range(1, right + 1):
        total += law.pmf(right - i)
        steepest = max(steepest, total / i)
    return law.sf(right - 1) + steepest * delta * 2 * canaries


@pytest.mark.parametrize("delta", [0.0, 1e-4, 1e-2])
@pytest.mark.parametrize("right", [50, 75, 90, 100])
def test_the_chance_of_so_many_right_guesses_is_that_of_the_published_listing(right, delta):
    assert _chance(1.0, 200, 100, right, delta) == pytest.approx(
        listed(1.0, 200, 100, right, delta), rel=1e-9
    )


@pytest.mark.long
def test_a_bound_of_too_little_noise_is_finite_though_no_epsilon_holds_for_it():
    """Lower bounds are for noise of real numbers: an infinite one would prove nothing."""
    included = np.arange(2000) % 2 == 0
    scores = Scores(np.where(included, 100.0, -100.0) + np.arange(2000) / 1e4, included)
    found = bounds(scores, ledger(0.5, 0.1, 40), 1e-6, 0.95, seed=0)
    assert 0 < found.family < math.inf
