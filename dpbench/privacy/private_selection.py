"""The privacy cost of running a mechanism a random number of times and releasing the best run.

Algorithm 1 of Papernot and Steinke, Hyperparameter Tuning with Renyi Differential Privacy, ICLR
2022; here the mechanism first chooses among several, by public uniform odds. The two accounts, by
Renyi divergences and by privacy profiles, are derived in docs/privacy/search_and_temperature.md.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from dpbench.privacy.accountants import ORDERS, epsilon_of, pld, rdp, renyi_divergences
from dpbench.privacy.entries import MAX_FAILURE, Unaccountable, unhidden
from dpbench.privacy.ledger import Ledger
from dpbench.privacy.profiles import ledger_profile
from dpbench.privacy.statement import AccountantName
from dpbench.system.errors import UserError
from dpbench.system.validate import number, one_of

TRIAL_LAWS = ("negative_binomial", "poisson", "binomial")

PRECISE = 1e-9
"""The relative precision of an epsilon."""

MAX_MEAN = 500.0
"""The largest mean number of runs."""


@dataclass(frozen=True)
class Repetitions:
    """The law of the number of runs: truncated negative binomial with a shape eta (1: geometric, 0:
    logarithmic), which is at least 1, or Poisson or binomial, which may be 0.

    mean: of the number of runs; shape: of the negative binomial, or the most runs of the binomial.
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
        if self.law == "binomial" and not (self.shape > self.mean and self.shape.is_integer()):
            raise UserError(
                f"law=binomial needs the largest number of trials as its shape, a whole number "
                f"above trials={self.mean:g}: set shape={2 * math.ceil(self.mean)}, for example."
            )

    @cached_property
    def gamma(self) -> float:
        """The parameter of the negative binomial with this mean (Definition 1); that of the
        binomial is the probability that one of its `shape` runs is not made."""
        if self.law == "binomial":
            return 1 - self.mean / self.shape
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
        if self.law == "binomial":
            return self._binomial(np.arange(most + 1.0))
        k = np.arange(1, most)
        ratios = (1 - self.gamma) * (k + self.shape) / (k + 1)
        return np.concatenate([[0.0], self._first * np.cumprod(np.concatenate([[1.0], ratios]))])

    def _binomial(self, k: np.ndarray) -> np.ndarray:
        rest = np.maximum(self.shape - k, 0)
        ways = gammaln(self.shape + 1) - gammaln(k + 1) - gammaln(rest + 1)
        logs = ways + k * math.log1p(-self.gamma) + rest * math.log(self.gamma)
        return np.where(k <= self.shape, np.exp(logs), 0.0)

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

    def divergences(self, single: np.ndarray, delta_at: Callable[[float], float]) -> np.ndarray:
        """Renyi divergences of the best run at ORDERS, from those of a single run (Theorems 2, 6).

        delta_at: the delta of a single run at an epsilon. Raises Unaccountable for the binomial.
        """
        if self.law == "binomial":
            raise Unaccountable("no theorem bounds the divergences of a binomial number of runs.")
        orders = np.array(ORDERS)
        chosen = single + math.log(self.mean) / (orders - 1)
        if self.law == "poisson":
            return chosen + self.mean * np.array([delta_at(np.log1p(1 / (a - 1))) for a in orders])
        inner = (1 - 1 / orders) * single - math.log(self.gamma) / orders
        found = chosen + (1 + self.shape) * inner.min()
        # Divergences grow with the order: each is bounded by all that follow.
        return np.minimum.accumulate(found[::-1])[::-1]

    def excess(self, delta_at: Callable[[float], float]) -> float:
        """What the choice adds to epsilon: a bound of log f'(F)/f'(F'), where f is the generating
        function of the number of runs, and F and F' are masses at or below one output.

        delta_at: the profile of a single run, the larger of both directions.
        """
        if self.law == "poisson":
            return self.mean * delta_at(0.0)
        odds = self.gamma / (1 - self.gamma)
        power = self.shape - 1 if self.law == "binomial" else self.shape + 1
        # It holds where the right-hand side is 1.
        most = math.log1p(1 / odds) * (1 + PRECISE)
        return power * _smallest(lambda e: delta_at(e) <= odds * math.expm1(e), most)


@dataclass(frozen=True)
class SelectionEpsilons:
    """The upper bounds of an epsilon by accountant; None where one has none."""

    rdp: float | None = None
    pld: float | None = None

    @property
    def by(self) -> AccountantName:
        """The accountant with the smaller bound."""
        return "pld" if self.rdp is None or (self.pld or math.inf) < self.rdp else "rdp"

    @property
    def epsilon(self) -> float:
        return min(bound for bound in (self.rdp, self.pld) if bound is not None)


def selection_costs(
    ledgers: Sequence[Ledger], repetitions: Repetitions, delta: float
) -> tuple[SelectionEpsilons, SelectionEpsilons]:
    """The cost of one run of any of the ledgers, chosen uniformly at random, and of the best of a
    random number of such runs; Unaccountable where neither account has a bound."""
    single = _cost(
        rdp=lambda: max(rdp(ledger, delta) for ledger in ledgers),
        pld=lambda: max(pld(ledger, delta) for ledger in ledgers),
    )
    # Noise as it is drawn ends; of all trials, any may show an example.
    beyond = repetitions.mean * max(map(unhidden, ledgers))
    if beyond > MAX_FAILURE * delta:
        return single, SelectionEpsilons(math.inf, math.inf)
    return single, _cost(
        rdp=lambda: _by_divergences(ledgers, repetitions, delta),
        pld=lambda: _by_profiles(ledgers, repetitions, delta),
    )


def _cost(**accounts: Callable[[], float]) -> SelectionEpsilons:
    """The bounds by accountant; Unaccountable if none has one."""
    bounds, reasons = {}, []
    for name, account in accounts.items():
        try:
            bounds[name] = account()
        except Unaccountable as reason:
            reasons.append(str(reason))
    if not bounds:
        raise Unaccountable(" ".join(dict.fromkeys(reasons)))
    return SelectionEpsilons(**bounds)


def _by_divergences(ledgers: Sequence[Ledger], repetitions: Repetitions, delta: float) -> float:
    """The mechanisms may be any: the largest divergence of all is used at each order."""
    from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

    single = np.max([renyi_divergences(ledger) for ledger in dict.fromkeys(ledgers)], axis=0)
    best = repetitions.divergences(single, lambda e: compute_delta(ORDERS, single, e)[0])
    return epsilon_of(best, delta - repetitions.mean * max(map(unhidden, ledgers)))


def _by_profiles(ledgers: Sequence[Ledger], repetitions: Repetitions, delta: float) -> float:
    """The choice among mechanisms may be released: no output belongs to two of them, so that the
    profile of all is the mean."""
    share = delta / repetitions.mean
    profiles = [(ledger_profile(ledger, share), n) for ledger, n in Counter(ledgers).items()]

    def delta_at(epsilon: float) -> float:
        return sum(n * float(profile.at(np.array(epsilon))) for profile, n in profiles) / len(
            ledgers
        )

    last = max(profile.largest for profile, _ in profiles)
    alone = _smallest(lambda epsilon: delta_at(epsilon) <= share, last)
    return alone + repetitions.excess(delta_at)


def _smallest(holds: Callable[[float], bool], high: float) -> float:
    """The smallest epsilon up to `high`, at which it holds, rounded up."""
    low = 0.0
    while high - low > PRECISE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@functools.cache
def _cumulative(law: Repetitions, most: int) -> np.ndarray:
    return np.cumsum(law.probabilities(most))


def _mean(gamma: float, shape: float) -> float:
    """E[K] of the truncated negative binomial."""
    if shape == 0:
        return (1 / gamma - 1) / -math.log(gamma)
    return shape * (1 / gamma - 1) / -math.expm1(shape * math.log(gamma))
