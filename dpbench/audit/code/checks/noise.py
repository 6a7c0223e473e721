"""Checks of the noise: its scale, its independence and its law."""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from dpbench.audit.code.audited import NEGLIGIBLE, Audited, AuditedTraining
from dpbench.audit.code.checks.participation import (
    as_claimed,
    claimed_rate,
    claimed_releases,
    uneven_sizes,
)
from dpbench.audit.code.task import NOTHING, AuditBatch, Finding, flagged, refuted
from dpbench.runs.records.epsilon import REFUTED

STEPS = 16
"""Steps of a run under another condition than the claim, whose runs have all steps."""

DRAWS, DRAWS_OF_A_CONDITION = 16_000, 4_000
"""Single draws of noise: for the claim itself, and under each other condition."""

LEAST_RUNS, STEPS_OF_LEAST_RUNS = 8, 8_000
"""Runs of the claim itself, however many parameters there are: each parameter is looked at. Of
long trainings there are fewer, with so many steps together, but at least two."""

MOST_NUMBERS = 800_000
"""Numbers of a run that are kept: those of evenly spaced parameters if there are more."""

RARE = 1e-9
"""The probability of a false alarm of one test."""

RARE_CORRELATION = 7.5
"""Of one pair, in standard deviations: rare among tens of thousands of pairs."""

MAX_COORDINATES, MAX_STEPS = 256, 1000
"""The most coordinates and steps of which all pairs are compared."""

SAME = 0.01
"""How near two draws are if they differ by rounding alone."""

LEAST_VARIANCE = 0.5
"""Of the least that random noise has in any direction."""

LEAST = 1e-3
"""The least noise that is any, in units of what is claimed."""


def learning_rate(steps: int) -> float:
    """So small that the model, and with it the sum, hardly moves over the steps of a run."""
    return 2.0 ** -round(4 + math.log2(steps) / 2)


def noise(
    code: Audited,
    batch: AuditBatch,
    number: int,
    steps: int = STEPS,
    least_runs: int = 1,
    **settings: Any,
) -> Tensor:
    """So much noise or more [runs, steps, D], in units of the noise multiplier times the bound:
    runs with noise, minus the same runs without; steps x D is MOST_NUMBERS at most."""
    multiplier = settings.pop("noise_multiplier", code.claim.noise_multiplier)
    settings = {"learning_rate": learning_rate(steps), **settings}

    def sums(seed: int, multiplier: float) -> Tensor:
        sums = code.noisy_sums(batch, steps, noise_multiplier=multiplier, seed=seed, **settings)
        return torch.stack(
            [noisy[:: math.ceil(steps * len(noisy) / MOST_NUMBERS)] for noisy in sums]
        )

    def one(seed: int) -> Tensor:
        return (sums(seed, multiplier) - sums(seed, NEGLIGIBLE)) / multiplier

    first = one(0)
    runs = max(least_runs, math.ceil(number / first.numel()))
    return torch.stack([first, *map(one, range(1, runs))])


@lru_cache(maxsize=1)
def noise_as_claimed(code: Audited) -> Tensor:
    """The noise [runs, steps, D] under the claimed settings, at which several checks look."""
    steps = code.claim.steps
    runs = min(LEAST_RUNS, max(2, STEPS_OF_LEAST_RUNS // steps))
    return noise(code, code.examples.usual(code.claim.bound), DRAWS, steps, runs)


def scale(code: Audited) -> Finding:
    """The noise has the claimed standard deviation in every coordinate, step and condition."""
    drawn = noise_as_claimed(code)
    by_coordinate, by_step = drawn.square().mean((0, 1)).sqrt(), drawn.square().mean((0, 2)).sqrt()
    overall = _deviation(drawn)
    if overall < LEAST:
        return refuted(
            "With the noise multiplier of the task and with next to none, the same is released: "
            "there is no noise, or its scale is not that of task.noise_multiplier."
        )
    if _differs(overall, drawn.numel()):
        return _wrong_scale("", overall)
    if _is_small(least := float(by_coordinate.min()), drawn[..., 0].numel(), len(by_coordinate)):
        silent = int((by_coordinate < 0.5).sum())
        return refuted(
            f"The noise of one parameter has {least:.3g} times the claimed standard deviation"
            + (f"; {silent} of {len(by_coordinate)} have less than half of it." if silent else ".")
        )
    if _is_small(least := float(by_step.min()), drawn[:, 0].numel(), len(by_step)):
        return refuted(f"In some steps the noise has {least:.3g} times its standard deviation.")
    at_rate = _at_the_claimed_rate(code) if isinstance(code, AuditedTraining) else None
    elsewhere = filter(None, (at_rate, *_conditions(code)))
    return min(elsewhere, key=lambda found: found.verdict != REFUTED, default=NOTHING)


def _at_the_claimed_rate(code: AuditedTraining) -> Finding | None:
    """What is wrong with the scale beside what an example adds, where batches are samples."""
    if not code.is_linear:
        return None
    rate, multiplier = claimed_rate(code), code.claim.noise_multiplier
    number = uneven_sizes(rate)[0]
    drawn = claimed_releases(code, number, multiplier)[:, number:] / multiplier
    spread = _deviation(drawn) / as_claimed(code, number).unit
    if not _differs(spread, drawn.numel()):
        return None
    return _wrong_scale(f", at a sampling rate of {rate:.3g},", spread)


def _conditions(code: Audited) -> Iterator[Finding]:
    bound, multiplier = code.claim.bound, code.claim.noise_multiplier
    made = code.examples
    batch, many = made.usual(bound), made.many(bound)
    conditions: tuple[tuple[str, AuditBatch, dict[str, Any]], ...] = (
        ("with one example in the batch", batch.at([0]), {}),
        ("with 16 examples in the batch", many, {}),
        ("with tiny gradients", made.tiny(bound), {}),
        ("with copies of one example", made.copies(bound, 4), {}),
        *(
            (f"at {words} the bound", made.usual(x * bound), {"bound": x * bound})
            for words, x in (("a quarter of", 0.25), ("four times", 4.0))
        ),
        *(
            (f"at {words} the multiplier", batch, {"noise_multiplier": x * multiplier})
            for words, x in (("half", 0.5), ("twice", 2.0))
        ),
        ("with physical batches of 4 of 16", many, {"physical_batch_size": 4}),
    )
    for words, examples, settings in conditions:
        drawn = noise(code, examples, DRAWS_OF_A_CONDITION, **settings)
        if _differs(spread := _deviation(drawn), drawn.numel()):
            yield _wrong_scale(f", {words}", spread)


def share_after(code: Audited, batch: AuditBatch) -> float:
    """How much noise there is on a batch, of what there is as claimed."""
    drawn = noise(code, batch, DRAWS_OF_A_CONDITION)
    return _deviation(drawn) / max(LEAST, _deviation(noise_as_claimed(code)))


def _deviation(drawn: Tensor) -> float:
    return float(drawn.square().mean().sqrt())


def _differs(spread: float, number: int) -> bool:
    """Whether a standard deviation of `number` draws is all but impossible if it should be 1."""
    law, statistic = stats.chi2(number), number * spread**2
    return 2 * min(law.cdf(statistic), law.sf(statistic)) < RARE


def _is_small(least: float, number: int, among: int) -> bool:
    """Whether a standard deviation of `number` draws is all but impossible, as the least of so
    many, if all should be 1."""
    return among * stats.chi2(number).cdf(number * least**2) < RARE


def _wrong_scale(words: str, spread: float) -> Finding:
    sentence = (
        f"The noise{words} has {spread:.3g} times the standard deviation that is claimed (noise "
        "multiplier times bound, on the sum)"
    )
    if spread < 1:
        return refuted(f"{sentence}.")
    return flagged(f"{sentence}: more than needed, which costs accuracy.")


def independence(code: Audited) -> Finding:
    """No two coordinates, steps or runs share noise, nor do runs of different seeds."""
    drawn = noise_as_claimed(code)
    if _has_twins(drawn.flatten(0, 1)):
        return refuted("Two parameters have the same noise, which cancels in their difference.")
    drawn = drawn[..., :MAX_COORDINATES]
    runs, steps, coordinates = drawn.shape
    apart = math.ceil(steps / MAX_STEPS)
    for words, rows in (
        ("two parameters", drawn.reshape(runs * steps, coordinates).T),
        ("two steps of a run", drawn[:, ::apart].transpose(0, 1).flatten(1)),
        ("two runs with different seeds", drawn.reshape(runs, -1)),
    ):
        if (shared := _strongest(rows)) is not None:
            return refuted(
                f"The noise of {words} is correlated ({shared:.2f}), and cancels in a difference: "
                "one draw, seed or generator state serves for both."
            )
    return _again_at_the_claimed_rate(code) or _fixed_seed(code)


def _again_at_the_claimed_rate(code: Audited) -> Finding | None:
    """What is wrong with noise that comes again in a step, where an epoch has several."""
    if not (isinstance(code, AuditedTraining) and code.is_linear):
        return None
    number = uneven_sizes(claimed_rate(code))[0]
    drawn = claimed_releases(code, number, code.claim.noise_multiplier)[:, number:]
    return refuted("Two steps of an epoch have the same noise.") if _has_twins(drawn.T) else None


def _has_twins(drawn: Tensor) -> bool:
    """Whether two of any number of columns [n, D] are the same: then their first numbers are
    neighbours in order."""
    noisy = drawn[:, drawn.std(0) > SAME]
    ordered = noisy[:, noisy[0].argsort()]
    return bool((ordered.diff(dim=1).abs() < SAME).all(0).any())


def _fixed_seed(code: Audited) -> Finding:
    """What is wrong with runs whose generators nobody seeds but the code."""
    batch = code.examples.usual(code.claim.bound)
    first, second = noise(code, batch, 1, least_runs=2, draws=None)
    if not first.any() or not torch.allclose(first, second, atol=SAME):
        return NOTHING
    return flagged(
        "Whatever the generators of torch, NumPy and Python are seeded with before, the noise is "
        "the same: the code seeds them itself, and who knows that seed knows the noise."
    )


def _strongest(rows: Tensor) -> float | None:
    """The strongest correlation of two rows [k, n], if it is no chance."""
    kept = rows[rows.std(1) > 0]
    if len(kept) < 2:
        return None
    pairs = torch.corrcoef(kept).fill_diagonal_(0)
    strongest = float(pairs.flatten()[pairs.abs().argmax()])
    return strongest if abs(strongest) * math.sqrt(rows.shape[1]) > RARE_CORRELATION else None


def law(code: Audited) -> Finding:
    """The noise is Gaussian with mean 0: each number, the length of all, and in all directions."""
    drawn = noise_as_claimed(code).flatten(0, 1)
    if not float(drawn.std()):
        return NOTHING
    standardised = drawn / drawn.square().mean().sqrt()
    return _numbers(standardised.flatten()) or _lengths(standardised) or _directions(standardised)


def _numbers(drawn: Tensor) -> Finding | None:
    """What is wrong with the law of single numbers [n], and with the largest."""
    largest = float(drawn.abs().max())
    none_larger = len(drawn) * math.log1p(-2 * stats.norm.sf(largest))
    chances = (
        stats.kstest(drawn.numpy(), "norm").pvalue,
        math.exp(none_larger),
        -math.expm1(none_larger),
    )
    if min(chances) > RARE:
        return None
    return refuted(
        f"The noise is not Gaussian with mean 0: mean {drawn.mean():.2f}, fourth moment "
        f"{(drawn**4).mean():.2f} instead of 3, largest {largest:.2f}, in units of its "
        "standard deviation."
    )


def _lengths(drawn: Tensor) -> Finding | None:
    """What is wrong with the squared lengths of the noise [n, D] of single steps."""
    squares = drawn.square().sum(1)
    if stats.kstest(squares.numpy(), stats.chi2(drawn.shape[1]).cdf).pvalue > RARE:
        return None
    return refuted(
        f"The length of a step's noise varies by {squares.std() / squares.mean():.2g} times its "
        f"mean, that of Gaussian noise by {math.sqrt(2 / drawn.shape[1]):.2g}: it is scaled to its "
        "own size, and what is left of a sum can be told."
    )


def _directions(drawn: Tensor) -> Finding:
    """What is wrong with the noise [n, D] in combinations of coordinates, of n / 4 groups at most
    (of random noise the least variance is then about a quarter)."""
    groups = drawn.tensor_split(min(drawn.shape[1], len(drawn) // 4), dim=1)
    sums = torch.stack([group.sum(1) / math.sqrt(group.shape[1]) for group in groups])
    least = float(torch.linalg.eigvalsh(sums @ sums.T / len(drawn))[0])
    if least > LEAST_VARIANCE * (1 - math.sqrt(len(groups) / len(drawn))) ** 2:
        return NOTHING
    return refuted(
        f"In one direction the noise has {math.sqrt(max(least, 0)):.2g} times the standard "
        "deviation of others: it is centred, projected, or less than a draw for each parameter."
    )
