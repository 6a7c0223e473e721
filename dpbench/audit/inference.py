"""From the scores of canaries to a lower bound of epsilon.

One half of the canaries chooses a threshold and the other half is tested at it: a threshold tested
on the scores that chose it would find an epsilon where there is none.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from dpbench.audit.tradeoff import least_fnr, with_noise_times
from dpbench.privacy.accountants import pld
from dpbench.privacy.gaussian import exact_epsilon
from dpbench.privacy.ledger import Ledger

THRESHOLDS = 200
"""How many thresholds the first half is tried at: quantiles of its scores."""

REFUTATION_LEVEL = 1 - 1e-4
"""The confidence at which an audit says that an epsilon does not hold."""

FACTORS = np.geomspace(1 / 8, 32, 49)
"""Multiples of the ledger's noise that are tried, to find the most that the scores allow."""


@dataclass(frozen=True)
class Scores:
    """Scores [m] of canaries, larger for those that look as if they were in the data, and whether
    they were: included [m] bool."""

    values: np.ndarray
    included: np.ndarray

    def halves(self, seed: int) -> tuple["Scores", "Scores"]:
        """The canaries dealt out at random."""
        order = np.random.default_rng(seed).permutation(len(self.values))
        first, second = order[: len(order) // 2], order[len(order) // 2 :]
        return self._at(first), self._at(second)

    def _at(self, indices: np.ndarray) -> "Scores":
        return Scores(self.values[indices], self.included[indices])


class Rates(NamedTuple):
    """Upper confidence limits of an attack's errors.

    fpr: the false positive rate, the share of canaries outside the data that are taken for members;
    fnr: the false negative rate, the share of canaries in the data that are not.
    """

    fpr: float
    fnr: float


@dataclass(frozen=True)
class Bounds:
    """Lower bounds of epsilon at one confidence, by inference.

    family: among mechanisms like the ledger's, with more or less noise; gdp: by Gaussian
    differential privacy; one_run: by Steinke et al. 2023, without independence of the canaries.
    """

    family: float
    gdp: float
    one_run: float


def strongest_attack(attacks: Sequence[Scores], seed: int) -> Scores:
    """The attack that does best on the half of the canaries that chooses thresholds."""

    def strength(scores: Scores) -> float:
        chosen, _ = scores.halves(seed)
        return gdp_mu(chosen, chosen, 0.95)

    return max(attacks, key=strength)


def bounds(scores: Scores, ledger: Ledger, delta: float, confidence: float, seed: int) -> Bounds:
    """The bounds that scores prove for the mechanism of a ledger."""
    halves = scores.halves(seed)
    return Bounds(
        family=family_epsilon(*halves, ledger, delta, confidence),
        gdp=gdp_epsilon(*halves, delta, confidence),
        one_run=one_run_epsilon(*halves, delta, confidence),
    )


def refutes(scores: Scores, ledger: Ledger, delta: float, seed: int) -> bool:
    """Whether scores like these have a chance of at most 1 - REFUTATION_LEVEL under the ledger."""
    excess = partial(_excess, ledger, delta)
    return excess(_at_best_threshold(*scores.halves(seed), excess, REFUTATION_LEVEL)) > 0


def family_epsilon(
    chosen: Scores, tested: Scores, ledger: Ledger, delta: float, confidence: float
) -> float:
    """The epsilon of the ledger with the most noise that the tested scores allow."""
    most = partial(_most_noise, ledger, delta)
    rates = _at_best_threshold(chosen, tested, most, confidence)
    high = -most(rates)[0]
    if high == FACTORS[-1]:
        return 0.0
    low = high / (FACTORS[1] / FACTORS[0])
    while high > 1.002 * low:
        middle = math.sqrt(low * high)
        possible = _excess(ledger, delta, rates, middle) <= 0
        low, high = (middle, high) if possible else (low, middle)
    return pld(with_noise_times(ledger, high), delta)


def gdp_epsilon(chosen: Scores, tested: Scores, delta: float, confidence: float) -> float:
    """The epsilon of the Gaussian mechanism with the least mu that the tested scores allow."""
    mu = gdp_mu(chosen, tested, confidence)
    return exact_epsilon(mu, delta) if mu > 0 else 0.0


def gdp_mu(chosen: Scores, tested: Scores, confidence: float) -> float:
    """The least mu of a Gaussian mechanism that allows the tested scores."""
    return _gaussian_mu(_at_best_threshold(chosen, tested, _gaussian_mu, confidence))


def _excess(ledger: Ledger, delta: float, rates: Rates, by: float = 1.0) -> float:
    """The least FNR of any attack on `by` times the noise, minus that of the rates."""
    return least_fnr(with_noise_times(ledger, by), rates.fpr, delta) - rates.fnr


def _most_noise(ledger: Ledger, delta: float, rates: Rates) -> tuple[float, float]:
    """Minus the smallest of FACTORS that is more noise than the rates allow, and its excess; minus
    the last one where they allow all."""
    low, high = 0, len(FACTORS) - 1
    while low < high:
        middle = (low + high) // 2
        possible = _excess(ledger, delta, rates, FACTORS[middle]) <= 0
        low, high = (middle + 1, high) if possible else (low, middle)
    return -float(FACTORS[low]), _excess(ledger, delta, rates, FACTORS[low])


def _at_best_threshold(
    chosen: Scores, tested: Scores, value: Callable[[Rates], Any], confidence: float
) -> Rates:
    """The tested canaries' rates, at the threshold with the largest value of the others' rates."""
    tried = np.unique(np.quantile(chosen.values, np.linspace(0.001, 0.999, THRESHOLDS)))
    rates = rates_at(chosen, tried, confidence)
    best = max(range(len(tried)), key=lambda i: value(rates[i]))
    return rates_at(tested, tried[best : best + 1], confidence)[0]


def rates_at(scores: Scores, thresholds: np.ndarray, confidence: float) -> list[Rates]:
    """Clopper-Pearson limits at each threshold, both of which hold with the confidence."""
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
    """Upper confidence limits of shares, by Clopper and Pearson 1934, at this level."""
    found = stats.beta.ppf(level, counts + 1, np.maximum(number - counts, 1))
    return np.where(counts == number, 1.0, found)


def _gaussian_mu(rates: Rates) -> float:
    """mu for which the rates are just possible: Phi(Phi^-1(1 - a) - mu) = b (Dong et al. 2022)."""
    if rates.fpr + rates.fnr >= 1:
        return 0.0
    return float(stats.norm.isf(rates.fpr) - stats.norm.ppf(rates.fnr))


def one_run_epsilon(chosen: Scores, tested: Scores, delta: float, confidence: float) -> float:
    """Steinke, Nasr and Jagielski 2023, Theorem 5.2, by guesses on those canaries of the tested
    half whose scores are beyond two thresholds, which the other half chooses."""
    tried = np.unique(np.quantile(chosen.values, np.linspace(0.01, 0.99, 41)))
    pairs = [(-math.inf, high) for high in tried] + [(low, math.inf) for low in tried]
    pairs += [(tried[i], tried[-1 - i]) for i in range(len(tried) // 2)]

    def least_share(pair: tuple[float, float]) -> float:
        """The share of correct guesses, bounded below."""
        guesses, right = _guesses(chosen, *pair)
        wrong = np.array([guesses - right])
        return 1 - float(_upper_limits(wrong, guesses, confidence)[0]) if guesses else 0.0

    guesses, right = _guesses(tested, *max(pairs, key=least_share))
    return _by_guesses(len(tested.values), guesses, right, delta, confidence)


def _guesses(scores: Scores, low: float, high: float) -> tuple[int, int]:
    """The number of canaries guessed (score below one threshold or above the other), and of correct
    guesses."""
    above, below = scores.values > high, scores.values < low
    right = (above & scores.included).sum() + (below & ~scores.included).sum()
    return int((above | below).sum()), int(right)


def _by_guesses(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
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
    """An upper bound on the probability of at least `right` correct guesses by (epsilon, delta)."""
    if not guesses:
        return 1.0
    law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    fewer = np.arange(1, right + 1)
    # sum_{j=1}^i P[right - j] / i, at its largest
    steepest = float((np.cumsum(law.pmf(right - fewer)) / fewer).max()) if right else 0.0
    return float(law.sf(right - 1)) + 2 * canaries * delta * steepest
