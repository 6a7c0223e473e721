"""The privacy cost of running a mechanism a random number of times and releasing the best run.

Papernot and Steinke, Hyperparameter Tuning with Renyi Differential Privacy, ICLR 2022. Algorithm 1:
draw a number of runs K, make K independent runs of the same mechanism, and release the one with
the highest score, where the score is part of what a run releases. Neither K nor any other run
is released. dp_accounting has it as RepeatAndSelectDpEvent, for one event; here the mechanism may
choose among several first, and its Renyi divergence is at most the largest of theirs.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from dpbench.errors import UserError
from dpbench.privacy.accountants import ORDERS, epsilon_of, renyi_divergences
from dpbench.privacy.entries import MAX_FAILURE
from dpbench.privacy.ledger import Ledger
from dpbench.privacy.noise_ends import unhidden
from dpbench.validate import number, one_of

TRIAL_LAWS = ("negative_binomial", "poisson")

MAX_MEAN = 500.0
"""The largest mean number of runs."""


@dataclass(frozen=True)
class Repetitions:
    """The law of the number of runs: truncated negative binomial with a shape eta (1: geometric, 0:
    logarithmic), which is at least 1, or Poisson, which may be 0.

    mean: of the number of runs; shape: of the negative binomial alone.
    """

    law: str = "negative_binomial"
    mean: float = 10.0
    shape: float = 1.0

    def __post_init__(self) -> None:
        one_of("law", self.law, TRIAL_LAWS)
        number("trials", self.mean, most=MAX_MEAN)
        number("shape", self.shape, least=0, most=MAX_MEAN)
        if self.mean <= 1:
            raise UserError(f"trials must be a mean above 1, got {self.mean:g}.")

    @cached_property
    def gamma(self) -> float:
        """The parameter of the negative binomial with this mean (Definition 1)."""
        if self.shape == 1:
            return 1 / self.mean

        def excess(log: float) -> float:
            return math.log(_mean(math.exp(log), self.shape) / self.mean)

        return math.exp(brentq(excess, -60, -1e-12, xtol=1e-14))

    def probabilities(self, most: int) -> np.ndarray:
        """P(K = k) for k = 0, ..., most."""
        if self.law == "poisson":
            ratios, first = self.mean / np.arange(1, most + 1), math.exp(-self.mean)
            return first * np.cumprod(np.concatenate([[1.0], ratios]))
        k = np.arange(1, most)
        ratios = (1 - self.gamma) * (k + self.shape) / (k + 1)
        return np.concatenate([[0.0], self._first * np.cumprod(np.concatenate([[1.0], ratios]))])

    @property
    def _first(self) -> float:
        """P(K = 1) of the negative binomial."""
        if self.shape == 0:
            return (1 - self.gamma) / -math.log(self.gamma)
        return self.shape * (1 - self.gamma) / math.expm1(-self.shape * math.log(self.gamma))

    def number(self, uniform: float) -> int:
        """The number of runs at a uniform draw, by inverse transform."""
        most = 64
        while (total := _cumulative(self, most))[-1] < uniform and most < 2**20:
            most *= 2
        return min(int(np.searchsorted(total, uniform)), most)

    def divergences(self, single: np.ndarray, delta_at) -> np.ndarray:
        """Renyi divergences of the best run at ORDERS, from those of a single run (Theorems 2, 6).

        delta_at: the delta of a single run at an epsilon.
        """
        orders = np.array(ORDERS)
        chosen = single + math.log(self.mean) / (orders - 1)
        if self.law == "poisson":
            return chosen + self.mean * np.array([delta_at(np.log1p(1 / (a - 1))) for a in orders])
        inner = (1 - 1 / orders) * single - math.log(self.gamma) / orders
        found = chosen + (1 + self.shape) * inner.min()
        # Divergences grow with the order: each is bounded by all that follow.
        return np.minimum.accumulate(found[::-1])[::-1]


def selection_epsilon(
    ledgers: Sequence[Ledger], repetitions: Repetitions, delta: float
) -> tuple[float, float]:
    """Epsilon of one run, and of the best of a random number of runs, each of which first chooses
    among the ledgers at random, with public odds.

    Raises Unaccountable for a ledger without Renyi divergences.
    """
    from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

    curves = [renyi_divergences(ledger) for ledger in dict.fromkeys(ledgers)]
    single = np.max(curves, axis=0)
    best = repetitions.divergences(single, lambda e: compute_delta(ORDERS, single, e)[0])
    # Noise as it is drawn ends; of all trials, any may show an example.
    beyond = max(map(unhidden, ledgers))

    def epsilon(divergences: np.ndarray, failure: float) -> float:
        too_likely = failure > MAX_FAILURE * delta
        return math.inf if too_likely else epsilon_of(divergences, delta - failure)

    return epsilon(single, beyond), epsilon(best, repetitions.mean * beyond)


@functools.cache
def _cumulative(law: Repetitions, most: int) -> np.ndarray:
    return np.cumsum(law.probabilities(most))


def _mean(gamma: float, shape: float) -> float:
    """E[K] of the truncated negative binomial."""
    if shape == 0:
        return (1 / gamma - 1) / -math.log(gamma)
    return shape * (1 / gamma - 1) / -math.expm1(shape * math.log(gamma))
