"""Accountants: from a ledger and a delta to an epsilon, or a refusal.

RDP and PLD are upper bounds. RDP is that of dp_accounting, to the bit; PLD is our own, because
dp_accounting's is no upper bound for tiny delta. GDP is the central-limit approximation of Bu et
al. 2020: it can understate epsilon. All are for adding or removing one example.
"""

import functools
import math
from collections.abc import Callable

import numpy as np

from dpbench.privacy import coordinates as coordinate
from dpbench.privacy.allocation import allocated
from dpbench.privacy.amplification import TruncatedProfile
from dpbench.privacy.entries import (
    MAX_FAILURE,
    JointRelease,
    Unaccountable,
    by_coordinate,
    deduct_failures,
    gaussian_parts,
    is_gaussian_sign,
    joint_entries,
    one_batch_per_release,
    unhidden,
)
from dpbench.privacy.gaussian import GaussianProfile, exact_epsilon
from dpbench.privacy.ledger import CoordinateMechanism, Ledger
from dpbench.privacy.paper_epsilons import (
    expansion_epsilon,
    limit_epsilon,
    loss_cumulants,
    note_epsilon,
    poisson_mu,
)
from dpbench.privacy.renyi import sampled_gaussian, smallest_epsilon
from dpbench.privacy.statement import AccountantName
from dpbench.privacy.tight import Steps, tight_epsilon
from dpbench.system.errors import UserError

EpsilonOf = Callable[[Ledger, float], float]


def _accountant(function: Callable[[list[JointRelease], float], float]) -> EpsilonOf:
    """Adds checks: delta in (0, 1), infinity for exact releases, a finite epsilon otherwise."""

    name = function.__name__.partition("_")[0]

    @functools.wraps(function)
    @functools.lru_cache(maxsize=4096)
    def checked(ledger: Ledger, delta: float) -> float:
        _check(delta)
        entries = list(joint_entries(ledger))
        if any(entry.joint == 0 for entry in entries):
            return math.inf
        try:
            # With hardly any noise numbers overflow; what is NaN then is refused below.
            with np.errstate(over="ignore", invalid="ignore"):
                epsilon = float(function(*deduct_failures(entries, delta))) if entries else 0.0
        except (ValueError, ArithmeticError, MemoryError) as error:
            epsilon, reason = math.nan, str(error)
        else:
            reason = f"epsilon = {epsilon}"
        # Exact releases were handled above: here infinity means that no bound was found.
        if not 0 <= epsilon < math.inf:
            raise Unaccountable(
                f"the {name} accountant has no bound at delta={delta:g} for this "
                f"budget ({reason}); choose a larger delta or a larger noise multiplier."
            )
        return epsilon

    return checked


def _check(delta: float) -> None:
    if not 0 < delta < 1:
        raise UserError(f"delta must lie between 0 and 1, got {delta!r}.")


ORDERS: tuple[float, ...] = (
    *(1 + x / 100 for x in range(1, 100)),
    *(2 + x / 10 for x in range(90)),
    *range(11, 64),
    *(72, 96),
    *(2**k for k in range(7, 15)),
)
"""RDP orders from just above 1 to far beyond what any useful budget selects."""


def _renyi(entries: list[JointRelease]) -> np.ndarray:
    """The Renyi divergences at ORDERS."""
    coordinates, others = by_coordinate(entries)
    total = sum((e.times * _divergences(e) for e in others), np.zeros(len(ORDERS)))
    return total + coordinate.renyi(coordinates, np.array(ORDERS)) if coordinates else total


def _divergences(entry: JointRelease) -> np.ndarray:
    """The Renyi divergences of one step. For a batch that may be cut, it averages moments."""
    rate, sigma = entry.rate * entry.share, entry.joint
    assert not isinstance(sigma, CoordinateMechanism)
    if entry.slots > 1:
        raise Unaccountable(
            "random allocation cannot be accounted for by RDP: set privacy.accountant=pld."
        )
    whole = sampled_gaussian(rate, sigma, ORDERS)
    if not entry.cut:
        return whole
    past_one = np.array(ORDERS) - 1
    uncut = math.log1p(-entry.cut) if entry.cut < 1 else -math.inf
    replaced = math.log(entry.cut) + past_one * sampled_gaussian(rate, sigma / 2, ORDERS)
    return np.logaddexp(uncut + past_one * whole, replaced) / past_one


def rdp(ledger: Ledger, delta: float) -> float:
    """Epsilon by Renyi divergences (Mironov et al. 2019), optimal over orders; an upper bound for
    noise as it is drawn."""
    return _as_drawn(rdp_of_reals, ledger, delta)


def pld(ledger: Ledger, delta: float) -> float:
    """Epsilon by privacy loss distributions (Koskela et al. 2020); a tight upper bound for noise as
    it is drawn."""
    return _as_drawn(pld_of_reals, ledger, delta)


def _as_drawn(accountant: EpsilonOf, ledger: Ledger, delta: float) -> float:
    """The epsilon for noise that ends, by an accountant for noise of real numbers: outputs that
    noise does not hide are deducted from delta, if they are small against it."""
    _check(delta)
    return (
        math.inf
        if noise_is_too_small(ledger, delta)
        else accountant(ledger, delta - unhidden(ledger))
    )


def noise_is_too_small(ledger: Ledger, delta: float) -> bool:
    """Whether noise ends where it would have to hide an example, so that no epsilon holds."""
    return unhidden(ledger) > MAX_FAILURE * delta


@_accountant
def rdp_of_reals(entries: list[JointRelease], delta: float) -> float:
    """`rdp` for noise of real numbers."""
    pure = not by_coordinate(entries)[1]
    steps = sum(entry.times for entry in entries)
    return epsilon_of(_renyi(entries), delta, "set privacy.accountant=pld", pure, steps)


def renyi_divergences(ledger: Ledger) -> np.ndarray:
    """The Renyi divergences of a ledger at ORDERS; Unaccountable for a release that is exact, whose
    sensitivity may fail, or of signs of Gaussian noise."""
    entries = list(joint_entries(ledger))
    if any(e.failure or e.joint == 0 or is_gaussian_sign(e.joint) for e in entries):
        raise Unaccountable(
            "Rényi divergences are only available here for noise whose sensitivity bound cannot "
            "fail, and not for signs of Gaussian noise."
        )
    return _renyi(entries)


def epsilon_of(
    divergences: np.ndarray,
    delta: float,
    remedy: str = "choose more noise or a larger delta",
    pure: bool = False,
    steps: int = 0,
) -> float:
    """The smallest epsilon that follows from Renyi divergences at ORDERS.

    Raises Unaccountable if the best order is the first or the last one. pure: whether each release
    has a finite pure epsilon, which the highest orders bound best. steps: as in `smallest_epsilon`.
    """
    edges = ORDERS[:1] if pure else (ORDERS[0], ORDERS[-1])
    epsilon, order = smallest_epsilon(ORDERS, divergences.tolist(), delta, steps)
    if order in edges and epsilon > 0.01:
        raise Unaccountable(
            f"the best Renyi order, {order}, is at the edge of the orders tried, so "
            f"epsilon = {epsilon:.3g} is not tight; {remedy}."
        )
    return epsilon


@_accountant
def moments(entries: list[JointRelease], delta: float) -> float:
    """Epsilon by Renyi divergences and rdp + log(1/delta)/(order - 1) (Abadi et al. 2016, Theorem
    2; Mironov 2017, Proposition 3): a looser bound than `rdp`, used by libraries until 2021."""
    return float(np.min(_renyi(entries) - math.log(delta) / (np.array(ORDERS) - 1)))


@_accountant
def pld_of_reals(entries: list[JointRelease], delta: float) -> float:
    """`pld` for noise of real numbers."""
    steps = steps_of(entries)
    match steps:
        case [Steps(GaussianProfile(mu), 1.0, 1)]:
            return exact_epsilon(mu, delta)
    return tight_epsilon(steps, delta)


def steps_of(entries: list[JointRelease]) -> list[Steps]:
    """The steps of entries, none of which is exact or a sign of Gaussian noise, with the profile of
    each: those on all of the data are one Gaussian mechanism."""
    coordinates, rest = by_coordinate(entries)
    others = [entry for entry in rest if entry.cut or entry.slots > 1]
    mu, sampled = gaussian_parts([entry for entry in rest if entry not in others])
    steps = [Steps(GaussianProfile(1 / sigma), rate, times) for rate, sigma, times in sampled]
    steps += map(_other_steps, others)
    steps += [Steps(coordinate.profile(m), rate, times) for rate, m, times in coordinates]
    return [*steps, *([Steps(GaussianProfile(mu), 1.0, 1)] if mu else [])]


def _other_steps(entry: JointRelease) -> Steps:
    """Steps that may be cut, or epochs of random allocation."""
    rate, sigma = entry.rate, entry.joint
    assert not isinstance(sigma, CoordinateMechanism)
    if entry.slots > 1:
        return Steps(*allocated(1 / sigma, entry.slots), entry.times)
    whole, replaced = GaussianProfile(1 / sigma), GaussianProfile(2 / sigma)
    return Steps(TruncatedProfile(whole, replaced, rate, entry.cut), rate, entry.times)


@_accountant
def gdp(entries: list[JointRelease], delta: float) -> float:
    """Epsilon by the Gaussian central limit (Bu et al. 2020): an approximation, not a bound."""
    if any(entry.cut or entry.slots > 1 for entry in entries):
        raise Unaccountable("the Gaussian central limit is that of Poisson samples.")
    mu = math.hypot(*(poisson_mu(rate, _sigma(joint), times) for rate, joint, times, *_ in entries))
    return limit_epsilon(mu, delta)


@_accountant
def edgeworth(entries: list[JointRelease], delta: float) -> float:
    """Epsilon by an Edgeworth expansion (Wang et al. 2022): an approximation, not a bound."""
    if by_coordinate(entries)[0] or any(entry.cut or entry.slots > 1 for entry in entries):
        raise Unaccountable("the Edgeworth expansion is that of Gaussian noise on Poisson samples.")
    losses = (times * loss_cumulants(rate, _sigma(joint)) for rate, joint, times, *_ in entries)
    return expansion_epsilon(sum(losses, np.zeros((2, 4))), delta)


@_accountant
def note(entries: list[JointRelease], delta: float) -> float:
    """Epsilon by the formula of the note on DP-SignSGD, which is no bound; Unaccountable for other
    mechanisms than signs of logistic noise."""
    signs = _signs(entries)
    return note_epsilon(signs, delta, ORDERS) if signs else 0.0


@_accountant
def lower_bound(entries: list[JointRelease], delta: float) -> float:
    """A lower bound of the true epsilon of signs of logistic noise, that of sums symmetric about 0;
    Unaccountable for other mechanisms."""
    signs = _signs(entries)
    return coordinate.symmetric_epsilon(signs, delta) if signs else 0.0


def _signs(entries: list[JointRelease]) -> list[tuple[float, CoordinateMechanism, int]]:
    signs, others = by_coordinate(entries)
    if others or not all(joint.signed for _, joint, _ in signs):
        raise Unaccountable("this formula holds only for signs of logistic noise.")
    return signs


def _sigma(joint: float | CoordinateMechanism) -> float:
    if isinstance(joint, CoordinateMechanism):
        return coordinate.equivalent_sigma(joint)
    return joint


SPENT: dict[AccountantName, EpsilonOf] = {"rdp": rdp, "pld": pld, "gdp": gdp}
"""The epsilon of a ledger by accountant: two upper bounds, and the approximation `gdp`."""

PAPER_ACCOUNTANTS = {
    "rdp": ("RDP", rdp_of_reals),
    "gdp": ("GDP", gdp),
    "moments": ("RDP, converted as in 2017", moments),
    "note": ("the note's formula", note),
}
"""Accountants used by papers: display name and function."""


def claimed(ledger: Ledger, delta: float, by: str) -> float | None:
    """Epsilon as a paper computes it: each release on a batch of its own, by an accountant in
    PAPER_ACCOUNTANTS; None if that does not apply.
    """
    try:
        return PAPER_ACCOUNTANTS[by][1](one_batch_per_release(ledger), delta)
    except Unaccountable:
        return None
