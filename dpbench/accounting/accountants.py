"""Accountants: from a ledger and a delta to an epsilon, or a refusal.

RDP and PLD are upper bounds that hold. RDP is by dp_accounting, and PLD by ours, because that of
dp_accounting is no upper bound where delta is tiny (dpbench.accounting.composition); noise on each
coordinate is in dpbench.accounting.coordinate_accounts. GDP is the central-limit approximation of
Bu et al. 2020 (through Opacus): it can understate, and is shown as a comparison. All are for
adding or removing one example.
"""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from dpbench.accounting import coordinate_accounts
from dpbench.accounting.gaussian import GaussianProfile, exact_epsilon
from dpbench.accounting.sign_note import note_epsilon
from dpbench.accounting.tight import Steps, tight_epsilon
from dpbench.errors import UserError
from dpbench.ledger import (
    CoordinateMechanism,
    Exact,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
)


class Unaccountable(UserError):
    """A ledger holds something that no accountant here can bound."""


def joint_multiplier(releases: tuple[Release, ...]) -> float:
    """The noise multiplier of one Gaussian that releases as much as all of them together.

    (sum_j sigma_j^-2)^(-1/2), which holds also if each query is chosen by the answers before it
    (Dong et al. 2022, composition of Gaussian mechanisms); 0 if something is released exactly.
    Raises Unaccountable for a mechanism that is not Gaussian.
    """
    precision = 0.0
    for release in releases:
        match release.mechanism:
            case Exact():
                return 0.0
            case GaussianMechanism(sigma):
                precision += sigma**-2
            case other:
                raise Unaccountable(f"no accountant knows {type(other).__name__} ({release.what}).")
    return precision**-0.5


def separated(ledger: Ledger) -> Ledger:
    """The ledger as if each release of a step had a batch of its own.

    That is how several papers account for a second query; it understates what one batch reveals.
    """
    apart = Ledger()
    for step, times in ledger.entries:
        for release in step.releases:
            apart = apart.after(Step(step.sampling, (release,)), times)
    return apart


class Entry(NamedTuple):
    """What a step releases all in all, and how often: `joint` is a Gaussian's multiplier, 0 where
    something is exact, or noise on each coordinate."""

    rate: float
    joint: float | CoordinateMechanism
    times: int


def _joint(releases: tuple[Release, ...]) -> float | CoordinateMechanism:
    alone = releases[0].mechanism if len(releases) == 1 else None
    return alone if isinstance(alone, CoordinateMechanism) else joint_multiplier(releases)


def _entries(ledger: Ledger) -> Iterator[Entry]:
    for step, times in ledger.entries:
        joint = _joint(step.releases)
        if not isinstance(step.sampling, Poisson):
            raise Unaccountable(
                f"batches drawn by {type(step.sampling).__name__} have no account; "
                "use sampler=poisson."
            )
        yield Entry(step.sampling.rate, joint, times)


def _by_coordinate(ledger: Ledger) -> list[tuple[float, CoordinateMechanism, int]]:
    """All entries if they are noise on each coordinate, none if none is."""
    entries = list(_entries(ledger))
    found = [(q, joint, n) for q, joint, n in entries if isinstance(joint, CoordinateMechanism)]
    if found and len(found) < len(entries):
        raise Unaccountable("no accountant adds Gaussian noise and noise on each coordinate up.")
    return found


def _gaussians(ledger: Ledger) -> Iterator[tuple[float, float, int]]:
    """(rate, multiplier, times) of each entry, all of which are Gaussian."""
    for rate, joint, times in _entries(ledger):
        assert not isinstance(joint, CoordinateMechanism)
        yield rate, joint, times


def _accountant(function: Callable[[Ledger, float], float]) -> Callable[[Ledger, float], float]:
    """What every accountant shares: delta in (0, 1), inf for exact releases, a sane answer."""

    @functools.wraps(function)
    @functools.lru_cache(maxsize=4096)
    def checked(ledger: Ledger, delta: float) -> float:
        if not 0 < delta < 1:
            raise UserError(f"delta must lie between 0 and 1, got {delta!r}.")
        entries = list(_entries(ledger))
        if any(entry.joint == 0 for entry in entries):
            return math.inf
        try:
            epsilon = float(function(ledger, delta)) if entries else 0.0
        except (ValueError, ArithmeticError, MemoryError) as error:
            epsilon, reason = math.nan, str(error)
        else:
            reason = f"epsilon = {epsilon}"
        # Infinity is of exact releases alone: here it is an accountant that found no bound.
        if not 0 <= epsilon < math.inf:
            raise Unaccountable(
                f"the {function.__name__} accountant has no bound at delta={delta:g} for this "
                f"budget ({reason}); choose a larger delta or a larger noise multiplier."
            )
        return epsilon

    return checked


@functools.cache
def _orders() -> tuple[float, ...]:
    """RDP orders from just above 1 to far beyond what any useful budget selects."""
    fine = [1 + x / 100 for x in range(1, 100)] + [2 + x / 10 for x in range(90)]
    return (*fine, *range(11, 64), 72, 96, *(2**k for k in range(7, 15)))


def _fill(accountant, ledger: Ledger):
    import dp_accounting
    from absl import logging

    logging.set_verbosity(logging.ERROR)  # it tells of every order that it leaves out
    for rate, sigma, times in _gaussians(ledger):
        event = dp_accounting.GaussianDpEvent(sigma)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, event), times)
    return accountant


@_accountant
def rdp(ledger: Ledger, delta: float) -> float:
    """Epsilon by Renyi divergences (Mironov et al. 2019), optimal over orders."""
    from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant, compute_epsilon

    orders = _orders()
    if entries := _by_coordinate(ledger):
        divergences = coordinate_accounts.renyi(entries, np.array(orders))
        epsilon, order = compute_epsilon(orders, divergences.tolist(), delta)
    else:
        epsilon, order = _fill(RdpAccountant(orders), ledger).get_epsilon_and_optimal_order(delta)
    # What has a finite pure epsilon is best bounded by the highest orders if it is asked only once.
    edges = orders[:1] if entries else (orders[0], orders[-1])
    if order in edges and epsilon > 0.01:
        raise Unaccountable(
            f"the best Renyi order, {order}, is at the edge of the orders tried, so "
            f"epsilon = {epsilon:.3g} is not tight; set privacy.accountant=pld."
        )
    return epsilon


@_accountant
def pld(ledger: Ledger, delta: float) -> float:
    """Epsilon by privacy loss distributions (Koskela et al. 2020), a tight upper bound."""
    if entries := _by_coordinate(ledger):
        return coordinate_accounts.composed_epsilon(entries, delta)
    # Steps that take all examples are one Gaussian mechanism (Dong et al. 2022).
    mu = math.hypot(*(times**0.5 / sigma for q, sigma, times in _gaussians(ledger) if q == 1))
    steps = [
        Steps(GaussianProfile(1 / sigma), rate, times)
        for rate, sigma, times in _gaussians(ledger)
        if rate < 1
    ]
    if not steps:
        return exact_epsilon(mu, delta)
    return tight_epsilon([*steps, *([Steps(GaussianProfile(mu), 1.0, 1)] if mu else [])], delta)


@_accountant
def gdp(ledger: Ledger, delta: float) -> float:
    """Epsilon by the Gaussian central limit (Bu et al. 2020): an approximation, not a bound."""
    from opacus.accountants.analysis.gdp import compute_mu_poisson, eps_from_mu

    mu = math.hypot(
        *(
            compute_mu_poisson(steps=times, noise_multiplier=_sigma(joint), sample_rate=rate)
            for rate, joint, times in _entries(ledger)
        )
    )
    return eps_from_mu(mu=mu, delta=delta)


@_accountant
def note(ledger: Ledger, delta: float) -> float:
    """Epsilon as the note on DP-SignSGD computes it for signs of logistic noise: not a bound.

    Raises Unaccountable for anything else.
    """
    entries = _signs(ledger)
    return note_epsilon(entries, delta, _orders()) if entries else 0.0


@_accountant
def at_least(ledger: Ledger, delta: float) -> float:
    """Epsilon that signs of logistic noise do spend, where all sums are symmetric about 0.

    Not a bound from above: data that spend more may exist, by up to what `pld` says. Raises
    Unaccountable for anything else.
    """
    entries = _signs(ledger)
    return coordinate_accounts.symmetric_epsilon(entries, delta) if entries else 0.0


def _signs(ledger: Ledger) -> list[tuple[float, CoordinateMechanism, int]]:
    entries = _by_coordinate(ledger)
    if len(entries) < len(ledger.entries) or not all(joint.signed for _, joint, _ in entries):
        raise Unaccountable("the note is about signs of logistic noise and nothing else.")
    return entries


def _sigma(joint: float | CoordinateMechanism) -> float:
    if isinstance(joint, CoordinateMechanism):
        return coordinate_accounts.equivalent_sigma(joint)
    return joint


ACCOUNTANTS = {"rdp": rdp, "pld": pld, "gdp": gdp}
"""Those that hold, and `gdp`, which only approximates."""


NARROW = 1.002
"""How close the ends of an interval of multipliers come before it is halved in the usual way."""


def calibrate(
    ledger_at: Callable[[float], Ledger], epsilon: float, delta: float, accountant: str
) -> float:
    """The smallest noise multiplier, to 0.1%, at which the whole ledger stays within epsilon.

    ledger_at(multiplier) must hold every release, side queries too. Raises UserError where no
    noise on the gradient reaches epsilon, because the side queries alone cost more.
    """
    spend = ACCOUNTANTS[accountant]

    def spent(multiplier: float) -> float:
        return spend(ledger_at(multiplier), delta)

    # From the usual multipliers outwards: PLD takes gigabytes for a very small one.
    low, high = 0.4, 0.8
    while low > 0.05 and spent(low) <= epsilon:
        low, high = low / 2, low
    while not spent(high) <= epsilon:
        low, high = high, high * 2
        if high > 1e5:
            raise UserError(
                f"no noise multiplier up to 1e5 reaches epsilon={epsilon} at delta={delta}: raise "
                "epsilon, or the noise of what the method releases beside the gradient."
            )
    return _halved(low, high, *_narrowed(low, high, spent, epsilon), lambda m: spent(m) <= epsilon)


def _narrowed(
    low: float, high: float, spent: Callable[[float], float], epsilon: float
) -> tuple[float, float]:
    """A closer interval of multipliers that the one in question lies in, by the Illinois method.

    It works on logarithms, in which epsilon is nearly a line. As epsilon falls with the multiplier,
    nothing outside the interval has to be asked for again.
    """
    with suppress(Unaccountable, ValueError):
        ends = {x: math.log(spent(x) / epsilon) for x in (low, high)}
        above, below, last = ends[low], ends[high], 0
        for _ in range(8):
            share = above / (above - below)
            if high / low < NARROW or not 0 < share < 1:
                break
            middle = low * (high / low) ** share
            found = math.log(spent(middle) / epsilon)
            side = 1 if found > 0 else -1
            # Twice on one side: count the other end for half, so that both come closer.
            if side > 0:
                low, above, below = middle, found, below / 2 if side == last else below
            else:
                high, below, above = middle, found, above / 2 if side == last else above
            last = side
    return low, high


def _halved(
    low: float, high: float, above: float, below: float, within: Callable[[float], bool]
) -> float:
    """The upper end of [low, high], halved to 0.1%; up to `above` nothing is within, from `below`
    everything."""
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        enough = middle >= below or (middle > above and within(middle))
        low, high = (low, middle) if enough else (middle, high)
    return high
