"""A ledger as accountants read it: joint releases per step, and the failures paid from delta."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeGuard

from dpbench.errors import UserError
from dpbench.privacy.gaussian_sign import sign_mu
from dpbench.privacy.ledger import (
    CoordinateMechanism,
    Exact,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
)

SIGN_SHARE = 0.01
"""The share of delta spent by the account of Gaussian signs, where it is the tighter one."""

MOST_FAILURE = 0.1
"""The share of delta from which on sensitivities that fail are refused."""


class Unaccountable(UserError):
    """A ledger holds something that no accountant here can bound."""


class Entry(NamedTuple):
    """What a step releases all in all, and how often: `joint` is a Gaussian's multiplier, 0 where
    something is exact, or noise on each coordinate. failure: that of a step's sensitivities."""

    rate: float
    joint: float | CoordinateMechanism
    times: int
    failure: float = 0.0


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
    """The ledger as papers have it: each release of a step with a batch of its own, and by the
    mechanism that is claimed of it.

    That is how several papers account for a second query; it understates what one batch reveals.
    """
    apart = Ledger()
    for step, times in ledger.entries:
        for release in step.releases:
            claimed = replace(release, mechanism=release.claimed or release.mechanism, claimed=None)
            apart = apart.after(Step(step.sampling, (claimed,)), times)
    return apart


def entries_of(ledger: Ledger) -> Iterator[Entry]:
    """One entry for each of the ledger; Unaccountable for what no accountant knows."""
    for step, times in ledger.entries:
        joint = _joint(step.releases)
        if not isinstance(step.sampling, Poisson):
            raise Unaccountable(
                f"batches drawn by {type(step.sampling).__name__} have no account; "
                "use sampler=poisson."
            )
        failure = sum(getattr(release.mechanism, "failure", 0.0) for release in step.releases)
        yield Entry(step.sampling.rate, joint, times, failure)


def _joint(releases: tuple[Release, ...]) -> float | CoordinateMechanism:
    alone = releases[0].mechanism if len(releases) == 1 else None
    return alone if isinstance(alone, CoordinateMechanism) else joint_multiplier(releases)


def settled(entries: Sequence[Entry], delta: float) -> tuple[list[Entry], float]:
    """The entries with Gaussians in the place of Gaussian signs, and what is left of delta.

    A sensitivity that fails with probability f moves the profile of a step by at most q f, since
    the example is in the batch with probability q whatever fails; so does a sign's account.
    Profiles of steps add such errors up. Raises Unaccountable where they are not small against
    delta.
    """
    lost = sum(entry.rate * entry.times * entry.failure for entry in entries)
    if lost > MOST_FAILURE * delta:
        raise Unaccountable(
            f"a sensitivity of this run fails with probability {lost:.2g}, which is not small "
            f"against delta={delta:g}: make method.failure {lost / (MOST_FAILURE * delta):.2g} "
            "times smaller, or delta larger."
        )
    signs = sum(e.rate * e.times for e in entries if _is_gaussian_sign(e.joint))
    if not signs:
        return list(entries), delta - lost
    failure = SIGN_SHARE * delta / signs
    gaussian = [entry._replace(joint=_as_gaussian(entry.joint, failure)) for entry in entries]
    # What is as good as the sum is the sum, which takes no share.
    gained = any(
        _is_gaussian_sign(old.joint) and new.joint != _of_sum(old.joint)
        for old, new in zip(entries, gaussian, strict=True)
    )
    return gaussian, delta - lost - gained * SIGN_SHARE * delta


Joint = float | CoordinateMechanism


def _is_gaussian_sign(joint: Joint) -> TypeGuard[CoordinateMechanism]:
    return isinstance(joint, CoordinateMechanism) and joint.noise == "gaussian"


def _as_gaussian(joint: Joint, failure: float) -> Joint:
    if not _is_gaussian_sign(joint):
        return joint
    return 1 / sign_mu(joint.dimension, joint.shift, failure)


def _of_sum(joint: CoordinateMechanism) -> float:
    return 1 / (math.sqrt(joint.dimension) * joint.shift)


def by_coordinate(entries: Sequence[Entry]) -> list[tuple[float, CoordinateMechanism, int]]:
    """All entries if they are noise on each coordinate, none if none is."""
    found = [(q, joint, n) for q, joint, n, _ in entries if isinstance(joint, CoordinateMechanism)]
    if found and len(found) < len(entries):
        raise Unaccountable("no accountant adds Gaussian noise and noise on each coordinate up.")
    return found


def gaussians(entries: Sequence[Entry]) -> Iterator[tuple[float, float, int]]:
    """(rate, multiplier, times) of each entry, all of which are Gaussian."""
    for rate, joint, times, _ in entries:
        assert not isinstance(joint, CoordinateMechanism)
        yield rate, joint, times


def gaussian_parts(entries: Sequence[Entry]) -> tuple[float, list[tuple[float, float, int]]]:
    """The mu of all steps that take all examples, which are one Gaussian mechanism (Dong et al.
    2022), and the other steps."""
    every = list(gaussians(entries))
    mu = math.hypot(*(times**0.5 / sigma for rate, sigma, times in every if rate == 1))
    return mu, [entry for entry in every if entry[0] < 1]
