"""Checks of the sum before noise: what an example adds to it, and what it changes beside that."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dpbench.audit.code.audited import NEGLIGIBLE, Audited, AuditedStep
from dpbench.audit.code.examples import SIZE, one_hot
from dpbench.audit.code.task import NOTHING, AuditBatch, Finding, flagged, refuted, skipped

TOLERANCE = 2e-3
"""In units of the bound: float32 rounding in parameters, and noise that is negligible."""

REACHED = 0.9
"""What the example that adds most must add, in units of the bound, for the clip to be tested."""

SMALLER = 16
"""How much smaller the other bound is: what is right at a bound of 1 may be wrong below."""

WARM_UP = 3
"""Steps before one that is looked at, after which outputs are no longer those of the start."""

MOST_STEPS, CHANGED = 64, 0.1
"""Steps of two runs with nearly the same model, and a difference that is no rounding there."""

RANDOM = skipped("The sum is random even without noise (dropout?): switch that off for this check.")


class BatchSum(NamedTuple):
    """How batches are heard: in words, at a bound, and their sum [D] in units of it."""

    words: str
    bound: float
    total: Callable[[AuditBatch], Tensor]


def _conditions(code: Audited) -> Iterator[BatchSum]:
    """As claimed, in several physical batches, at a smaller bound, and in a later step."""
    bound, smaller = code.claim.bound, code.claim.bound / SMALLER
    yield BatchSum("", bound, code.exact_sum)
    yield BatchSum(
        ", in physical batches of 2,", bound, partial(code.exact_sum, physical_batch_size=2)
    )
    as_far = partial(code.exact_sum, bound=smaller, learning_rate=float(SMALLER))
    yield BatchSum(f", at a bound of {smaller:g},", smaller, as_far)
    if isinstance(code, AuditedStep):
        yield BatchSum(f", in step {WARM_UP + 1},", bound, partial(_later_sum, code))


def _later_sum(code: AuditedStep, batch: AuditBatch) -> Tensor:
    """The sum [D] after steps on other examples."""
    before = [code.examples.usual(code.claim.bound)] * WARM_UP
    return code.sums_of([*before, batch], noise_multiplier=NEGLIGIBLE)[-1]


def sensitivity(code: Audited) -> Finding:
    """Take each example away from each probe: the sum may move by at most the bound."""
    if _is_random(code):
        return RANDOM
    for condition in _conditions(code):
        probes = code.examples.probes(condition.bound).items()
        moved, words, alone = max(_farthest(condition.total, *probe) for probe in probes)
        if not condition.words and moved < REACHED and not code.examples.made_up:
            return skipped(
                f"No example moves the sum by more than {moved:.3g} times the bound, so that none "
                "is clipped: give a smaller bound, or examples with larger gradients."
            )
        if moved > 1 + TOLERANCE:
            return refuted(_too_far(moved, words + condition.words, alone))
    return _in_each_step(code)


def _farthest(
    total: Callable[[AuditBatch], Tensor], words: str, batch: AuditBatch
) -> tuple[float, str, float]:
    """The example that moves the sum farthest: how far, of which probe, and its sum alone."""
    whole = total(batch)
    moved = [_length(whole - total(batch.without(i))) for i in range(len(batch))]
    farthest = max(range(len(batch)), key=moved.__getitem__)
    return moved[farthest], words, _length(total(batch.at([farthest])))


def _length(vector: Tensor) -> float:
    """The norm, infinite for what is no number."""
    return float(vector.norm().nan_to_num(nan=math.inf))


def _too_far(moved: float, words: str, alone: float) -> str:
    if math.isinf(moved):
        return f"On {SIZE} {words} parameters are not finite, which tells that they were there."
    why = (
        f"on its own it adds {alone:.3g}, so what it adds depends on the others"
        if alone <= 1 + TOLERANCE
        else "it is not clipped to the bound"
    )
    return (
        f"Taking one of {SIZE} {words} away moves the sum by {moved:.4g} times the bound, and the "
        f"noise covers 1: {why}."
    )


def _in_each_step(code: Audited) -> Finding:
    """What is wrong with steps whose example is clipped otherwise than in the first."""
    bound, steps = code.claim.bound, min(MOST_STEPS, code.claim.steps)
    batch = code.examples.usual(bound)
    settings: dict[str, Any] = {"noise_multiplier": NEGLIGIBLE, "learning_rate": 2.0**-10 / bound}
    with_it, without = (code.sums(b, steps, **settings) for b in (batch, batch.without(0)))
    moved = (with_it - without).norm(dim=1)
    if moved.max() <= 1 + CHANGED:
        return NOTHING
    return refuted(
        f"In step {int(moved.argmax()) + 1} an example moves the sum by {moved.max():.3g} times "
        f"the bound, and in the first by {moved[0]:.3g}: the clip changes from step to step."
    )


def additivity(code: Audited) -> Finding:
    """The sum over a batch is that over its halves together."""
    if _is_random(code):
        return RANDOM
    worst, words = max(
        (_interaction(condition.total, batch), words + condition.words)
        for condition in _conditions(code)
        for words, batch in code.examples.probes(condition.bound).items()
    )
    if worst <= 3 * TOLERANCE:
        return _others_in_each_step(code)
    return flagged(
        f"The sum over {SIZE} {words} differs from the sums over its halves by {worst:.3g} times "
        "the bound: what one example adds depends on the others, through a statistic of the batch, "
        "a layer that mixes examples, or a division by its size."
    )


def _others_in_each_step(code: Audited) -> Finding:
    """What is wrong with examples that share no coordinate: of a linear model, each moves its own
    in all steps, whatever the others are."""
    if not code.is_linear:
        return NOTHING
    bound, steps = code.claim.bound, min(MOST_STEPS, code.claim.steps)
    alike = one_hot(list(range(SIZE)), bound / 4)
    kept = (torch.arange(SIZE) > 0).float()
    emptied = AuditBatch(alike.inputs * kept.unsqueeze(1), alike.targets * kept)
    first, second = (code.sums(b, steps, noise_multiplier=NEGLIGIBLE) for b in (alike, emptied))
    worst = float((first - second)[:, 1:SIZE].abs().max())
    if worst <= 3 * TOLERANCE:
        return NOTHING
    return flagged(
        f"What an example adds to later steps changes by {worst:.3g} times the bound with another "
        "example, with which it shares no coordinate: through outputs or statistics of the batch."
    )


def _interaction(total: Callable[[AuditBatch], Tensor], batch: AuditBatch) -> float:
    halves = (batch.at(range(start, len(batch), 2)) for start in (0, 1))
    parts = sum(total(half) for half in halves)
    return _length(total(batch) - parts)


def _is_random(code: Audited) -> bool:
    """Whether other draws after the initial parameters change the sum."""
    first, second = (
        code.exact_sum(code.examples.usual(code.claim.bound), draws=draws) for draws in (0, 1)
    )
    return float((first - second).norm()) > TOLERANCE


def real_batch_size(code: AuditedStep) -> Finding:
    """Eight copies of an example add eight times what one adds, also if that is more than a
    physical batch, or than is expected."""
    several: tuple[dict[str, Any], ...] = ({}, {"physical_batch_size": 2}, {"batch_size": 4.0})
    return next(filter(None, (_copies(code, settings) for settings in several)), NOTHING)


def _copies(code: AuditedStep, settings: dict[str, Any]) -> Finding | None:
    copies = [code.examples.copies(code.claim.bound, number) for number in (1, 8)]
    one, eight = (float(code.exact_sum(batch, **settings).norm()) for batch in copies)
    if one < TOLERANCE or abs(eight / one - 8) < 8 * TOLERANCE:
        return None
    if abs(eight / one - 1) < TOLERANCE:
        return refuted(
            "Eight copies of an example move the parameters as far as one: the sum is divided by "
            "the real size of the batch, so the amount of noise tells that size."
        )
    words = "".join(f", with a {name} of {size:g}" for name, size in settings.items())
    return flagged(
        f"Eight copies of an example move the parameters {eight / one:.3g} times as far as one"
        f"{words.replace('_', ' ')}."
    )


def carry_over(code: AuditedStep) -> Finding:
    """A step after one on large examples is that after one on a small example."""
    small, large, others = code.examples.unlike(code.claim.bound)
    settings: dict[str, Any] = {"noise_multiplier": NEGLIGIBLE, "learning_rate": 2.0**-10}
    left = max(
        float((code.sums_of([others, then], **settings)[1] - without[1]).norm())
        for then in (small, large)
        for without in [code.sums_of([small, then], **settings)]
    )
    if left < 0.1:
        return NOTHING
    return refuted(
        f"A step depends on the batch before it, by {left:.3g} times the bound: gradients are not "
        "reset, or norms, bounds or scales are those of earlier batches, so an example is released "
        "in steps that do not use it (or the optimizer has momentum: audit with plain SGD)."
    )
