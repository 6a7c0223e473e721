"""Checks of the sum before noise: what an example adds to it, and what it changes beside that."""

from typing import Any

from dpbench.audit.code.audited import NEGLIGIBLE, Audited, AuditedStep
from dpbench.audit.code.examples import SIZE
from dpbench.audit.code.finding import NOTHING, Finding, flagged, refuted, skipped
from dpbench.audit.code.task import Batch

TOLERANCE = 2e-3
"""In units of the bound: float32 rounding in parameters, and noise that is negligible."""

REACHED = 0.9
"""What the example that adds most must add, in units of the bound, for the clip to be tested."""

RANDOM = skipped("The sum is random even without noise (dropout?): switch that off for this check.")


def sensitivity(code: Audited) -> Finding:
    """Take each example away from each probe: the sum may move by at most the bound."""
    if _is_random(code):
        return RANDOM
    moved, words, alone = max(
        (
            _farthest(code, batch, words)
            for words, batch in code.examples.probes(code.claim.bound).items()
        ),
        key=lambda found: found[0],
    )
    if moved < REACHED and not code.examples.made_up:
        return skipped(
            f"No example moves the sum by more than {moved:.3g} times the bound, so that none is "
            "clipped: give a smaller bound, or examples with larger gradients."
        )
    if moved <= 1 + TOLERANCE:
        return NOTHING
    why = (
        f"on its own it adds {alone:.3g}, so what it adds depends on the others"
        if alone <= 1 + TOLERANCE
        else "it is not clipped to the bound"
    )
    return refuted(
        f"Taking one of {SIZE} {words} away moves the sum by {moved:.3g} times the bound, and the "
        f"noise covers 1: {why}."
    )


def _farthest(code: Audited, batch: Batch, words: str) -> tuple[float, str, float]:
    """The example that moves the sum farthest: how far, of which probe, and its sum alone."""
    total = code.exact_sum(batch)
    moved = [float((total - code.exact_sum(batch.without(i))).norm()) for i in range(len(batch))]
    farthest = max(range(len(batch)), key=moved.__getitem__)
    return moved[farthest], words, float(code.exact_sum(batch.at([farthest])).norm())


def additivity(code: Audited) -> Finding:
    """The sum over a batch is that over its halves together."""
    if _is_random(code):
        return RANDOM
    worst, words = max(
        (_interaction(code, b), w) for w, b in code.examples.probes(code.claim.bound).items()
    )
    if worst <= 3 * TOLERANCE:
        return NOTHING
    return flagged(
        f"The sum over {SIZE} {words} differs from the sums over its halves by {worst:.3g} times "
        "the bound: what one example adds depends on the others, through a statistic of the batch, "
        "a layer that mixes examples, or a division by its size."
    )


def _interaction(code: Audited, batch: Batch) -> float:
    halves = (batch.at(range(start, len(batch), 2)) for start in (0, 1))
    parts = sum(code.exact_sum(half) for half in halves)
    return float((code.exact_sum(batch) - parts).norm())


def _is_random(code: Audited) -> bool:
    """Whether other draws after the initial parameters change the sum."""
    first, second = (
        code.exact_sum(code.examples.usual(code.claim.bound), draws=draws) for draws in (0, 1)
    )
    return float((first - second).norm()) > TOLERANCE


def real_batch_size(code: AuditedStep) -> Finding:
    """Eight copies of an example add eight times what one adds."""
    copies = [code.examples.copies(code.claim.bound, number) for number in (1, 8)]
    one, eight = (float(code.exact_sum(batch).norm()) for batch in copies)
    if one < TOLERANCE or abs(eight / one - 8) < 8 * TOLERANCE:
        return NOTHING
    if abs(eight / one - 1) < TOLERANCE:
        return refuted(
            "Eight copies of an example move the parameters as far as one: the sum is divided by "
            "the real size of the batch, so the amount of noise tells that size."
        )
    return flagged(
        f"Eight copies of an example move the parameters {eight / one:.3g} times as far as one."
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
