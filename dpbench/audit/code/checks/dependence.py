"""A check that examples are drawn independently of each other, and of what was drawn before."""

import math
from collections.abc import Iterator
from typing import Any

from scipy import stats
from torch import Tensor

from dpbench.audit.code.audited import NEGLIGIBLE, AuditedTraining
from dpbench.audit.code.checks.noise import RARE
from dpbench.audit.code.checks.participation import (
    CYCLE,
    STEPS,
    UNSEEN,
    as_claimed,
    claimed_rate,
    in_epochs,
    uneven_sizes,
)
from dpbench.audit.code.examples import LENGTH, one_hot
from dpbench.audit.code.task import NOTHING, Finding, refuted

MANY_STEPS = 8 * STEPS
"""Steps of a training on few examples."""

RARE_PAIRS = 9.0
"""Of all pairs together, in standard deviations: a sum of squares has a long tail."""


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
