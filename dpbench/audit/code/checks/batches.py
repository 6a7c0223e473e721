"""Checks of the batches that a training draws, each example by itself, and of when it releases."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from dpbench.audit.code.audited import NEGLIGIBLE, AuditedStep, AuditedTraining, StoppedEarly
from dpbench.audit.code.checks.noise import RARE, RARE_CORRELATION, share_after
from dpbench.audit.code.checks.participation import (
    CYCLE,
    EPOCHS,
    UNSEEN,
    Participation,
    as_claimed,
    claimed_rate,
    in_epochs,
    kinds,
    uneven_sizes,
)
from dpbench.audit.code.examples import LENGTH, one_hot
from dpbench.audit.code.task import NOTHING, Finding, flagged, refuted
from dpbench.system.errors import UserError, counted

LEAST_STEPS = 40
"""Steps in which some batch is empty, if all batches are samples."""

LESS_NOISE = 0.8
"""A share that is no chance among the draws of a condition."""

COMPARED = 64
"""Examples whose batches are compared with noise, in as many coordinates."""

RUNS, STEPS = 200, 2
"""Runs and steps in which batches are compared with noise: generators of one seed may be in step
only at first."""


MANY_STEPS = 8 * CYCLE * EPOCHS
"""Steps of a training on few examples."""

RARE_PAIRS = 9.0
"""Of all pairs together, in standard deviations: a sum of squares has a long tail."""


def empty_batch(code: AuditedStep) -> Finding:
    """A step on no example is one of noise alone."""
    nothing = code.examples.usual(code.claim.bound).at([])
    try:
        moved = code.sums(nothing)[0]
    except UserError as error:
        return refuted(
            f"A Poisson batch may be empty, and then the code fails, which tells: {error}"
        )
    if not torch.isfinite(moved).all():
        return refuted("After an empty batch, parameters are not finite, which tells that it was.")
    if not moved.any():
        return refuted("An empty batch is skipped without noise, which tells that it was empty.")
    share = share_after(code, nothing)
    if share > LESS_NOISE:
        return NOTHING
    return refuted(
        f"After an empty batch the noise has {share:.3g} times the standard deviation that it has "
        "after others, which tells that it was empty."
    )


def releases(code: AuditedTraining) -> Finding:
    """A training releases as many steps as planned, whatever its data, each with noise."""
    bound, made, steps = code.claim.bound, code.examples, max(LEAST_STEPS, code.claim.steps)
    for data in (made.usual(bound), made.many(bound), made.tiny(bound)):
        try:
            sums = code.released(data, sample_rate=0.25, steps=steps)
            silent = sum(not noisy.any() for noisy in sums)
        except StoppedEarly as error:
            return refuted(str(error))
        except UserError as error:
            return refuted(
                f"With {len(data)} examples some batch is empty, and the code fails: {error}"
            )
        if silent:
            return refuted(
                f"{silent} of {steps} steps leave all parameters as they were: whether one is "
                "taken depends on the data (an empty batch that is skipped, a comparison)."
            )
    return NOTHING


def sampling(code: AuditedTraining) -> Finding:
    """Batches are Poisson samples, at the claimed rate and at another."""
    if not code.is_linear:
        return UNSEEN
    seen, other = in_epochs(code), in_epochs(code, seed=1)
    if torch.equal(seen.members, other.members):
        return refuted("The batches are the same for every seed.")
    claimed = (as_claimed(code, number) for number in uneven_sizes(claimed_rate(code)))
    of_claimed = (_amounts(batches, batches.unit) or _law(batches) for batches in claimed)
    of_epochs = _amounts(seen, 1.0) or _repetition(seen) or _law(seen) or _too_few(seen)
    return of_epochs or next(filter(None, of_claimed), NOTHING)


def _amounts(seen: Participation, unit: float) -> Finding | None:
    """What is wrong with how much an example adds, which should be the unit."""
    added = seen.amounts[seen.members] / unit
    low, high = (float(end) for end in added.aminmax()) if len(added) else (1.0, 1.0)
    if high < 1.01 and low > 0.99:
        return None
    if torch.allclose(added, added.round(), atol=1e-2):
        return refuted(
            f"An example adds {high:.0f} times the bound to some steps: it is in the batch more "
            "than once (sampling with replacement)."
        )
    return refuted(
        f"An example adds {low:.2f} times the bound to one step and {high:.2f} times to another: "
        "the sum is divided by the real size of the batch, which the noise then tells."
    )


def _repetition(seen: Participation) -> Finding | None:
    """What is wrong with batches that come again, or exclude each other."""
    members = seen.members
    epochs = members.unflatten(0, (EPOCHS, CYCLE))
    if bool((epochs.sum(1) == 1).all()):
        return refuted(
            "Each example is used exactly once in each epoch: batches are shuffled, and epsilons "
            "for Poisson samples do not hold for them."
        )
    repeated = (members[1:] == members[:-1]).all(1) & (seen.sizes[1:] > 0)
    if int(repeated.sum()) > 2:
        return refuted(f"{int(repeated.sum())} batches are the same as the one before them.")
    if bool((epochs[1:] == epochs[:1]).all()):
        return refuted("All epochs have the same batches: an example's steps are not drawn anew.")
    return None


def _law(seen: Participation) -> Finding | None:
    """What is wrong with the number of examples in batches."""
    sizes = seen.sizes
    if seen.rate < 1 and int(sizes.min()) == int(sizes.max()):
        return refuted(
            f"All batches have {counted(int(sizes[0]), 'example')}, those of Poisson samples vary: "
            "epsilons for Poisson samples do not hold for batches of a fixed size."
        )
    return _too_often(seen)


def _too_often(seen: Participation) -> Finding | None:
    """What is in batches more often than the account says: examples, all or of a kind, one of them,
    or those of one step. The chance of a false alarm is RARE for all of these together."""
    members = seen.members
    of_kinds = {f"an example {words}": members[:, k] for words, k in kinds(len(members.T)).items()}
    parts = {"an example": members, **of_kinds}
    looks = {words: (part.sum().view(1), part.numel()) for words, part in parts.items()}
    looks["one example"] = members.sum(0), len(members)
    looks["in one step an example"] = seen.sizes, len(members.T)
    for words, (drawn, number) in looks.items():
        most = int(drawn.max())
        if len(looks) * len(drawn) * stats.binom.sf(most - 1, number, seen.rate) < RARE:
            return refuted(
                f"Of {len(members.T)} examples, {words} is in a batch with probability "
                f"{most / number:.3f}, and the account says {seen.rate:.3f}."
            )
    return None


def _too_few(seen: Participation) -> Finding | None:
    """Whether examples are used less often than claimed, where there is nothing to round."""
    number, drawn = seen.members.numel(), int(seen.members.sum())
    if stats.binom.cdf(drawn, number, seen.rate) >= RARE:
        return None
    return flagged(
        f"Examples are used at a rate of {drawn / number:.3f} instead of {seen.rate:.3f}."
    )


def generators(code: AuditedTraining) -> Finding:
    """Batches say nothing of the noise."""
    if not code.is_linear:
        return UNSEEN
    lengths = LENGTH * code.claim.bound
    data = one_hot(list(range(COMPARED)), lengths, COMPARED)
    settings: dict[str, Any] = {"sample_rate": 0.5, "steps": STEPS}
    exact, noisy = (
        torch.stack([code.train(data, seed=s, noise_multiplier=m, **settings) for s in range(RUNS)])
        for m in (NEGLIGIBLE, code.claim.noise_multiplier)
    )
    members, noise = (exact.abs() > 0.05).double(), noisy - exact
    sizes = noise.abs().clamp(min=1e-12).log()
    strongest = max(
        _correlation(members[:, :steps].flatten(0, 1), drawn[:, :steps].flatten(0, 1))
        for steps in (1, STEPS)
        for drawn in (noise, sizes)
    )
    if strongest * math.sqrt(RUNS) < RARE_CORRELATION:
        return NOTHING
    return refuted(
        f"Who is in a batch is correlated with the noise ({strongest:.2f}): both are drawn from "
        "the same numbers, by generators of the same seed."
    )


def _correlation(first: Tensor, second: Tensor) -> float:
    """The strongest correlation of a column of one with a column of the other."""
    scaled = [(x - x.mean(0)) / x.std(0, correction=0).clamp(min=1e-12) for x in (first, second)]
    return float((scaled[0].T @ scaled[1] / len(first)).abs().max())


def dependence(code: AuditedTraining) -> Finding:
    """Whether an example is in a batch says nothing of others, nor of other batches."""
    if not code.is_linear:
        return UNSEEN
    number = uneven_sizes(claimed_rate(code))[0]
    seen = (in_epochs(code), as_claimed(code, number))
    dependent = (found for each in seen for found in _dependent(each.members))
    return next(dependent, None) or _sizes_of_few(code) or NOTHING


def _dependent(members: Tensor) -> Iterator[Finding]:
    """What is wrong with who is in which batch [steps, n]."""
    rate = members.double().mean()
    if members.all() or not members.any():
        return
    drawn = (members.double() - rate) / (rate * (1 - rate)).sqrt()
    for what, rows, why in (
        ("Sizes of batches", drawn, "examples are drawn in groups, by quota or up to a size"),
        ("Numbers of steps of an example", drawn.T, "some are drawn more often, or all by quota"),
    ):
        totals = rows.sum(1).square() / rows.shape[1]
        law, total = stats.chi2(len(totals)), float(totals.sum())
        if 2 * min(law.cdf(total), law.sf(total)) < RARE:
            yield refuted(
                f"{what} vary by {math.sqrt(total / len(totals)):.2g} times what they do if each "
                f"example is drawn by itself, as the account says: {why}."
            )
    for what, rows, why in (
        ("another is", drawn.T, "examples are drawn together"),
        ("it was before", drawn, "batches come again, or exclude each other"),
    ):
        if _excess(rows) > RARE_PAIRS:
            yield refuted(f"Whether an example is in a batch depends on whether {what}: {why}.")


def _excess(rows: Tensor) -> float:
    """By how much the squared correlations of all pairs of rows [k, n] exceed those of independent
    rows, in standard deviations."""
    k, n = rows.shape
    correlations = (rows @ rows.T).square() / n
    pairs = k * (k - 1) / 2
    kurtosis = float((rows**4).mean()) ** 2
    spread = math.sqrt(pairs * (2 + kurtosis / n))
    return (float(correlations.triu(1).sum()) - pairs) / spread


def _sizes_of_few(code: AuditedTraining) -> Finding | None:
    """What is wrong with the sizes of batches of few examples, many of which are empty."""
    data = one_hot(list(range(CYCLE)), LENGTH * code.claim.bound, CYCLE)
    settings: dict[str, Any] = {"sample_rate": 1 / CYCLE, "steps": MANY_STEPS}
    sizes = (code.train(data, noise_multiplier=NEGLIGIBLE, **settings).abs() > 0.05).sum(1)
    for most in range(CYCLE):
        number, share = int((sizes <= most).sum()), stats.binom.cdf(most, CYCLE, 1 / CYCLE)
        law = stats.binom(MANY_STEPS, share)
        if min(law.cdf(number), law.sf(number - 1)) < RARE:
            return refuted(
                f"Of {MANY_STEPS} batches of {CYCLE} examples at a sampling rate of {1 / CYCLE:g}, "
                f"{number} have at most {most} instead of about {law.mean():.0f}: empty batches "
                "are drawn again, or large ones cut."
            )
    return None
