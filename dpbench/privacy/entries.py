"""A ledger as accountants read it: joint releases per step, and failures deducted from delta.

Noise in floating point ends, and an output that it cannot reach proves that the example is in the
data (Mironov 2012): how likely that is follows from the same releases.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeGuard

from scipy.special import betainc, ndtr

from dpbench.privacy.gaussian import sign_mu
from dpbench.privacy.ledger import (
    Allocation,
    CoordinateMechanism,
    Exact,
    GaussianMechanism,
    InverseToeplitzGaussian,
    Ledger,
    Release,
    Shuffled,
    Step,
    ToeplitzGaussian,
    TruncatedPoisson,
    WholeRunGaussian,
)
from dpbench.privacy.toeplitz import inverse_sensitivity, sensitivity
from dpbench.system.errors import UserError

SIGN_SHARE = 0.01
"""The share of delta spent by the account of Gaussian signs, where that account is tighter."""

MAX_FAILURE = 0.1
"""The largest share of delta that may go to sensitivities that can fail, or to noise that ends."""

GAUSSIAN_END, LOGISTIC_END = 10.5, 55.0
"""Where noise ends, in standard deviations of a Gaussian and scales of logistic and Laplace noise:
up to here thousands of the draws of `dpbench.mechanism.noise` fall on each point of its grid."""


class Unaccountable(UserError):
    """The ledger contains a mechanism or a sampler that no accountant can bound."""


Joint = float | CoordinateMechanism


class JointRelease(NamedTuple):
    """The joint release of a step, and the number of such steps that an example may be in.

    joint: the noise multiplier of a Gaussian, 0 if anything is released exactly, or a mechanism
    with noise on each coordinate. failure: the probability that a sensitivity of a step fails. cut:
    the probability that a batch is cut. slots: with random allocation, a step of this entry is an
    epoch of `slots` steps, and an example is in one of them. carried: the noise multiplier of what
    earlier steps left in this one's sum, whose noise is a share of the same draw; inf for nothing.
    share: see `GaussianMechanism`. The Rényi divergence is that of the rate `share * rate`; other
    accounts leave it out, as no example is in more batches than are drawn, or moves more than the
    sensitivity (docs/privacy/accounting.md).
    """

    rate: float
    joint: Joint
    times: int
    failure: float = 0.0
    cut: float = 0.0
    slots: int = 1
    carried: float = math.inf
    share: float = 1.0


def joint_multiplier(releases: tuple[Release, ...]) -> float:
    """The noise multiplier of the one Gaussian mechanism equivalent to all of them together.

    (sum_j sigma_j^-2)^(-1/2), also for queries that depend on earlier answers (Dong et al. 2022,
    composition of Gaussian mechanisms); 0 if anything is released exactly. Raises Unaccountable
    for a mechanism that is not Gaussian.
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


def one_batch_per_release(ledger: Ledger) -> Ledger:
    """The ledger as papers account for it: a separate batch for each release, which understates
    what one reveals, by the mechanism that the paper claims."""
    separate = Ledger()
    for step, times in ledger.entries:
        for release in step.releases:
            claimed = replace(release, mechanism=release.claimed or release.mechanism, claimed=None)
            separate = separate.after(Step(step.sampling, (claimed,)), times)
    return separate


def joint_entries(ledger: Ledger) -> Iterator[JointRelease]:
    """For each entry of the ledger, one for its sampled and one for its unsampled releases."""
    for step, times in ledger.entries:
        match step.sampling:
            case Shuffled():
                raise Unaccountable(
                    "no accountant covers shuffled batches: use sampler=poisson, truncated or "
                    "allocation, or privacy=noise1, which has a noise and states no epsilon."
                )
            case TruncatedPoisson() as law:
                yield JointRelease(
                    law.rate, _infallible_multiplier(step), times, cut=cut_probability(law)
                )
                continue
            case Allocation() as law:
                yield _allocated(law, _infallible_multiplier(step), times)
                continue
        if any(isinstance(release.mechanism, WholeRunGaussian) for release in step.releases):
            yield _whole_run(ledger, step, step.sampling.cycle, times)
            continue
        unsampled = tuple(release for release in step.releases if release.unsampled)
        _check_independent(unsampled)
        carried = joint_multiplier(unsampled) if unsampled else math.inf
        if sampled := tuple(release for release in step.releases if not release.unsampled):
            turns = _turns(step, step.sampling.cycle, times)
            failure = sum(getattr(release.mechanism, "failure", 0.0) for release in sampled)
            joint = _joint(sampled)
            rate, share = step.sampling.rate, _share(sampled)
            yield JointRelease(rate, joint, turns, failure, carried=carried, share=share)
        if unsampled:
            yield JointRelease(1.0, carried, times)


def _share(releases: Sequence[Release]) -> float:
    """The share of all releases of a batch: the largest, since what moves a query by s a/p at most
    moves it by s b/p at most for b > a."""
    return max(
        m.share if isinstance(m, GaussianMechanism) and m.bands == 1 and not m.failure else 1.0
        for m in (release.mechanism for release in releases)
    )


def _check_independent(releases: Sequence[Release]) -> None:
    """Unaccountable for noise that is correlated over steps, and a sensitivity that may fail."""
    for release in releases:
        mechanism = release.mechanism
        if isinstance(mechanism, GaussianMechanism) and (mechanism.failure or mechanism.bands != 1):
            raise Unaccountable(
                f"the {release.what} can only be accounted for with independent noise and a "
                "sensitivity that is never exceeded."
            )


def cut_probability(law: TruncatedPoisson) -> float:
    """The probability that the other units alone fill a batch to its limit.

    In such a step, which depends only on the others, the unit may take the place of another: with
    probability at most `rate` it moves the sum by twice the sensitivity. In all other steps it does
    not make the batch too large, and the sample is Poisson (Ganesh 2025, arXiv:2508.15089).
    """
    if law.limit > law.size:
        return 0.0
    # The upper tail of the binomial distribution; bdtrc is less exact where there are many units.
    return float(betainc(law.limit, law.size - law.limit + 1, law.rate))


def _allocated(law: Allocation, joint: float, times: int) -> JointRelease:
    """Epochs of random allocation. Each of several turns is one step of a block of steps/turns; the
    blocks are drawn first, and taken as public (Feldman and Shenfeld 2025)."""
    if times % law.steps:
        raise Unaccountable(
            f"random allocation can only be accounted for in whole epochs of {law.steps} steps "
            "with a single noise multiplier: let schedule.noise change between epochs alone, or "
            "use sampler=poisson."
        )
    slots = law.steps // law.turns
    return JointRelease(1 / slots, joint, times // slots, slots=slots)


def _infallible_multiplier(step: Step) -> float:
    """The joint multiplier of independent Gaussian noise whose sensitivities cannot fail."""
    for release in step.releases:
        match release.mechanism:
            case GaussianMechanism(failure=0, bands=1, share=1) | Exact() if not release.unsampled:
                continue
        raise Unaccountable(
            f"the {release.what} of this method can only be accounted for under Poisson sampling: "
            "use sampler=poisson."
        )
    return joint_multiplier(step.releases)


def _whole_run(ledger: Ledger, step: Step, cycle: int, times: int) -> JointRelease:
    """All steps with noise that is correlated over the whole run: one Gaussian mechanism.

    Sampling does not amplify it, since later steps reveal which batches an example was in. Raises
    Unaccountable unless there is one noise multiplier and nothing else is released from a batch.
    """
    mechanisms = [release.mechanism for each, _ in ledger.entries for release in each.releases]
    whole, *more = [m for m in mechanisms if isinstance(m, WholeRunGaussian)]
    if more or len(step.releases) > 1:
        raise Unaccountable(
            "noise correlated over the whole run can only be accounted for with a single noise "
            "multiplier and no other queries: leave schedule.noise unset, or use another method."
        )
    match whole:
        case ToeplitzGaussian(_, decays, weights):
            moved = sensitivity(decays, weights, times, cycle)
        case InverseToeplitzGaussian(_, taken, normalised, horizon):
            if normalised and times > horizon:
                raise Unaccountable(f"noise normalised for {horizon} steps covers no more of them.")
            try:
                moved = inverse_sensitivity(taken, normalised, horizon, times, cycle)
            except ValueError as error:
                raise Unaccountable(str(error)) from None
    return JointRelease(1.0, whole.noise_multiplier / moved, 1)


def _turns(step: Step, cycle: int, times: int) -> int:
    """The most turns that one example can have in `times` steps.

    With noise that is correlated over no more steps than the cycle has, each turn is one sampled
    Gaussian mechanism (Choquette-Choo et al. 2023, Theorem 4); else Unaccountable is raised.
    """
    bands = max(getattr(release.mechanism, "bands", 1) for release in step.releases)
    if bands > cycle:
        raise Unaccountable(
            f"no accountant covers noise that is correlated over {bands} steps if an example may "
            f"be in batches that are {cycle} apart."
        )
    return math.ceil(times / cycle)


def _joint(releases: tuple[Release, ...]) -> Joint:
    only = releases[0].mechanism if len(releases) == 1 else None
    return only if isinstance(only, CoordinateMechanism) else joint_multiplier(releases)


def deduct_failures(
    entries: Sequence[JointRelease], delta: float
) -> tuple[list[JointRelease], float]:
    """The entries with Gaussian signs replaced by dominating Gaussians, and the remaining delta.

    A sensitivity that fails with probability f moves the profile of a step by at most q f, since
    the example is in the batch with probability q independently of the failure; so does replacing a
    sign by a Gaussian. These errors add up over steps. Raises Unaccountable where they are not
    small against delta.
    """
    failures = sum(entry.rate * entry.times * entry.failure for entry in entries)
    if failures > MAX_FAILURE * delta:
        raise Unaccountable(
            f"a sensitivity of this run fails with probability {failures:.2g}, which is not small "
            f"against delta={delta:g}: make method.failure {failures / (MAX_FAILURE * delta):.2g} "
            "times smaller, or delta larger."
        )
    signs = sum(e.rate * e.times for e in entries if is_gaussian_sign(e.joint))
    if not signs:
        return list(entries), delta - failures
    failure = SIGN_SHARE * delta / signs
    gaussian = [entry._replace(joint=_as_gaussian(entry.joint, failure)) for entry in entries]
    # A sign accounted for by its sum needs no share of delta.
    tighter = any(
        is_gaussian_sign(old.joint) and new.joint != _multiplier_of_sum(old.joint)
        for old, new in zip(entries, gaussian, strict=True)
    )
    return gaussian, delta - failures - tighter * SIGN_SHARE * delta


def is_gaussian_sign(joint: Joint) -> TypeGuard[CoordinateMechanism]:
    return isinstance(joint, CoordinateMechanism) and joint.noise == "gaussian"


def _as_gaussian(joint: Joint, failure: float) -> Joint:
    if not is_gaussian_sign(joint):
        return joint
    return 1 / sign_mu(joint.dimension, joint.shift, failure)


def _multiplier_of_sum(joint: CoordinateMechanism) -> float:
    return 1 / (math.sqrt(joint.dimension) * joint.shift)


def by_coordinate(
    entries: Sequence[JointRelease],
) -> tuple[list[tuple[float, CoordinateMechanism, int]], list[JointRelease]]:
    """The entries with noise on each coordinate, as (rate, mechanism, times), and the others."""
    coordinates = [
        (q, joint, n) for q, joint, n, *_ in entries if isinstance(joint, CoordinateMechanism)
    ]
    return coordinates, [e for e in entries if not isinstance(e.joint, CoordinateMechanism)]


def gaussian_parts(entries: Sequence[JointRelease]) -> tuple[float, list[tuple[float, float, int]]]:
    """The joint mu of all full-batch steps, one Gaussian mechanism (Dong et al. 2022), and the
    sampled steps as (rate, multiplier, times); all are Gaussian on Poisson samples."""
    steps = []
    for entry in entries:
        assert not entry.cut
        assert entry.slots == 1
        assert not isinstance(entry.joint, CoordinateMechanism)
        steps.append((entry.rate, entry.joint, entry.times))
    mu = math.hypot(*(times**0.5 / sigma for rate, sigma, times in steps if rate == 1))
    return mu, [entry for entry in steps if entry[0] < 1]


@functools.lru_cache(maxsize=4096)
def unhidden(ledger: Ledger) -> float:
    """The probability that noise as it is drawn does not hide an example, over the whole ledger.

    An example that moves a sum by s is seen where noise, which ends at a, cannot reach: with
    probability Phi(-(a - s)) for a Gaussian if all of s is in one coordinate, in each step that it
    is in; s is what its gradient and what it left in earlier steps move together. Coordinates that
    it hardly moves are neglected: s phi(a) sqrt(D) for all together, 1e-20 for 1e9 of them.
    """
    entries = joint_entries(ledger)
    return sum(entry.rate * entry.slots * entry.times * _beyond(entry) for entry in entries)


def _beyond(entry: JointRelease) -> float:
    if isinstance(entry.joint, CoordinateMechanism):
        shift, size = entry.joint.shift, entry.joint.dimension
        if entry.joint.noise == "gaussian":
            return min(1.0, size * float(ndtr(shift - GAUSSIAN_END)))
        return min(1.0, size * math.exp(min(shift - LOGISTIC_END, 0.0)))
    if entry.joint == 0:
        return 0.0  # an exact release, whose epsilon is infinite anyway
    # What the example is moved by together, as both shares of the noise are one draw: with shares
    # s and 1 - s of its variance, sqrt(1 - s) x + sqrt(s) y <= hypot(x, y).
    shift = math.hypot(1 / entry.joint, 1 / entry.carried) if entry.carried else math.inf
    beyond = float(ndtr(shift - GAUSSIAN_END))
    # In a step that is cut it replaces another example, and moves the sum by twice as much.
    return beyond + entry.cut * float(ndtr(2 / entry.joint - GAUSSIAN_END))
