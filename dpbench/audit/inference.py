"""From the scores of canaries to a lower bound of epsilon.

One half of the canaries selects a threshold and the other half is tested at it: a threshold tested
on the scores that selected it would find an epsilon where there is none.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dpbench.audit.tradeoff import Account, least_fnr, least_spent, scaled_noise
from dpbench.learning.metrics.students_t import CONFIDENCE
from dpbench.privacy.gaussian import exact_epsilon

THRESHOLDS = 200
"""The number of thresholds to select from: quantiles of the first half's scores."""

REFUTATION_LEVEL = 1 - 1e-4
"""The confidence needed to refute an epsilon."""


def refutation_level(tests: int) -> float:
    """The confidence of each of so many tests, of which together one refutes (Bonferroni)."""
    return 1 - (1 - REFUTATION_LEVEL) / tests


FACTORS = np.geomspace(1 / 8, 32, 49)
"""Multiples of the account's noise to try, to find the most noise that the scores allow."""


@dataclass(frozen=True)
class Scores:
    """Scores [m] of canaries, larger for those that seem to be in the data, and whether they are:
    included [m] bool."""

    values: np.ndarray
    included: np.ndarray

    def halves(self, seed: int) -> tuple["Scores", "Scores"]:
        """Two random halves of the canaries."""
        order = np.random.default_rng(seed).permutation(len(self.values))
        parts = order[: len(order) // 2], order[len(order) // 2 :]
        first, second = (Scores(self.values[part], self.included[part]) for part in parts)
        return first, second


class Rates(NamedTuple):
    """Upper confidence limits of an attack's errors. fpr: of the share of canaries outside the data
    that are taken for members; fnr: of those in the data that are not."""

    fpr: float
    fnr: float


@dataclass(frozen=True)
class LowerBounds:
    """Lower bounds of epsilon at one confidence. family: among mechanisms like the account's, with
    more or less noise; gdp: by Gaussian differential privacy; one_run: by Steinke et al. 2023."""

    family: float
    gdp: float
    one_run: float


def strongest_attack(attacks: Sequence[Scores], seed: int) -> Scores:
    """The attack that does best on the half of the canaries that selects thresholds."""

    def strength(scores: Scores) -> float:
        selection, _ = scores.halves(seed)
        return gdp_mu(selection, selection, CONFIDENCE)

    return max(attacks, key=strength)


def bounds(
    scores: Scores, account: Account, delta: float, confidence: float, seed: int
) -> LowerBounds:
    """The bounds that follow from scores of what an account is of."""
    halves = scores.halves(seed)
    return LowerBounds(
        family=family_epsilon(*halves, account, delta, confidence),
        gdp=gdp_epsilon(*halves, delta, confidence),
        one_run=one_run_epsilon(*halves, delta, confidence),
    )


def refutes(scores: Scores, account: Account, delta: float, seed: int, tests: int = 1) -> bool:
    """Whether such scores have a probability of at most 1 - REFUTATION_LEVEL under the account, as
    one of so many tests."""
    excess, level = partial(_excess, account, delta), refutation_level(tests)
    return excess(_at_best_threshold(*scores.halves(seed), excess, level)) > 0


def family_epsilon(
    selection: Scores, tested: Scores, account: Account, delta: float, confidence: float
) -> float:
    """The epsilon of the account with the most noise that the tested scores allow."""
    strength = partial(_strength, account, delta)
    rates = _at_best_threshold(selection, tested, strength, confidence)
    high = -strength(rates)[0]
    if high == FACTORS[-1]:
        return 0.0
    low = high / (FACTORS[1] / FACTORS[0])
    while high > 1.002 * low:
        middle = math.sqrt(low * high)
        possible = _excess(account, delta, rates, middle) <= 0
        low, high = (middle, high) if possible else (low, middle)
    return least_spent(scaled_noise(account, high), delta)


def gdp_epsilon(selection: Scores, tested: Scores, delta: float, confidence: float) -> float:
    """The epsilon of the Gaussian mechanism with the least mu that the tested scores allow."""
    mu = gdp_mu(selection, tested, confidence)
    return exact_epsilon(mu, delta) if mu > 0 else 0.0


def gdp_mu(selection: Scores, tested: Scores, confidence: float) -> float:
    """The least mu of a Gaussian mechanism that allows the tested scores."""
    return _gaussian_mu(_at_best_threshold(selection, tested, _gaussian_mu, confidence))


def _excess(account: Account, delta: float, rates: Rates, factor: float = 1.0) -> float:
    """The least FNR of any attack on `factor` times the noise, minus that of the rates: above 0,
    the rates are impossible."""
    return least_fnr(scaled_noise(account, factor), rates.fpr, delta) - rates.fnr


def _strength(account: Account, delta: float, rates: Rates) -> tuple[float, float]:
    """How strong an attack with these rates is, in lexicographic order: minus the smallest of
    FACTORS at which they are impossible (minus the last if there is none), and the excess there."""
    excess = partial(_excess, account, delta, rates)
    factor = FACTORS[bisect_left(FACTORS[:-1], True, key=lambda factor: excess(factor) > 0)]
    return -float(factor), excess(factor)


def _at_best_threshold(
    selection: Scores, tested: Scores, value: Callable[[Rates], Any], confidence: float
) -> Rates:
    """The rates of the tested canaries, at the threshold of largest value on the selection half."""
    tried = np.unique(np.quantile(selection.values, np.linspace(0.001, 0.999, THRESHOLDS)))
    rates = rates_at(selection, tried, confidence)
    best = max(range(len(tried)), key=lambda i: value(rates[i]))
    return rates_at(tested, tried[best : best + 1], confidence)[0]


def rates_at(scores: Scores, thresholds: np.ndarray, confidence: float) -> list[Rates]:
    """Clopper-Pearson limits at each threshold, which hold jointly at this confidence."""
    members, others = (np.sort(scores.values[scores.included == is_in]) for is_in in (True, False))
    level = 1 - (1 - confidence) / 2
    false_positives = len(others) - np.searchsorted(others, thresholds, "right")
    false_negatives = np.searchsorted(members, thresholds, "right")
    limits = (
        _upper_limits(false_positives, len(others), level),
        _upper_limits(false_negatives, len(members), level),
    )
    return [Rates(*pair) for pair in zip(*limits, strict=True)]


def _upper_limits(counts: np.ndarray, number: int, level: float) -> np.ndarray:
    limits = stats.beta.ppf(level, counts + 1, np.maximum(number - counts, 1))
    return np.where(counts == number, 1.0, limits)


def _gaussian_mu(rates: Rates) -> float:
    """mu for which the rates are just possible: Phi(Phi^-1(1 - a) - mu) = b (Dong et al. 2022)."""
    if rates.fpr + rates.fnr >= 1:
        return 0.0
    return float(stats.norm.isf(rates.fpr) - stats.norm.ppf(rates.fnr))


def one_run_epsilon(selection: Scores, tested: Scores, delta: float, confidence: float) -> float:
    """A lower bound of epsilon from a single run (Steinke, Nasr and Jagielski 2023, Theorem 5.2),
    by guesses of those tested canaries whose scores lie outside two thresholds of the other half.
    """
    tried = np.unique(np.quantile(selection.values, np.linspace(0.01, 0.99, 41)))
    pairs = [(-math.inf, high) for high in tried] + [(low, math.inf) for low in tried]
    pairs += [(tried[i], tried[-1 - i]) for i in range(len(tried) // 2)]

    def least_share(pair: tuple[float, float]) -> float:
        """A lower confidence limit of the share of correct guesses."""
        guesses, right = _guesses(selection, *pair)
        wrong = np.array([guesses - right])
        return 1 - float(_upper_limits(wrong, guesses, confidence)[0]) if guesses else 0.0

    guesses, right = _guesses(tested, *max(pairs, key=least_share))
    return _guessing_epsilon(len(tested.values), guesses, right, delta, confidence)


def _guesses(scores: Scores, low: float, high: float) -> tuple[int, int]:
    """The number of canaries guessed (score below one threshold or above the other), and of correct
    guesses."""
    above, below = scores.values > high, scores.values < low
    right = (above & scores.included).sum() + (below & ~scores.included).sum()
    return int((above | below).sum()), int(right)


def _guessing_epsilon(
    canaries: int, guesses: int, right: int, delta: float, confidence: float
) -> float:
    """The smallest epsilon consistent with this many correct guesses."""
    if _chance(0.0, canaries, guesses, right, delta) > 1 - confidence:
        return 0.0
    low, high = 0.0, 64.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        rare = _chance(middle, canaries, guesses, right, delta) <= 1 - confidence
        low, high = (middle, high) if rare else (low, middle)
    return low


def _chance(epsilon: float, canaries: int, guesses: int, right: int, delta: float) -> float:
    """An upper bound on the probability of `right` or more correct guesses at (epsilon, delta)."""
    if not guesses:
        return 1.0
    law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    fewer = np.arange(1, right + 1)
    # sum_{j=1}^i P[right - j] / i, at its largest
    steepest = float((np.cumsum(law.pmf(right - fewer)) / fewer).max()) if right else 0.0
    return float(law.sf(right - 1)) + 2 * canaries * delta * steepest
