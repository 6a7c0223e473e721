"""Checks of the batches that a training draws, and of when it releases."""

import math
from typing import Any, NamedTuple

import torch
from scipy import stats
from torch import Tensor

from dpbench.audit.code.audited import NEGLIGIBLE, AuditedStep, AuditedTraining, StoppedEarly
from dpbench.audit.code.checks.noise import RARE, RARE_CORRELATION
from dpbench.audit.code.examples import LENGTH, one_hot
from dpbench.audit.code.finding import NOTHING, Finding, flagged, refuted, skipped
from dpbench.system.errors import UserError

EXAMPLES, CYCLE, EPOCHS = 256, 8, 24
"""Examples of a training, batches per epoch, and epochs, of which sampling is seen."""

LEAST_STEPS = 40
"""Steps in which some batch is empty, if all batches are samples."""

COMPARED = 64
"""Examples whose batches are compared with noise, in as many coordinates."""

RUNS, STEPS = 200, 2
"""Runs and steps in which batches are compared with noise: generators of one seed may be in step
only at first."""

UNSEEN = skipped("The model is not linear: who is in a batch is only seen there.")


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
    return NOTHING


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


class Participation(NamedTuple):
    """How much each example adds in each step: amounts [steps, n]."""

    amounts: Tensor

    @property
    def members(self) -> Tensor:
        """Who is in which batch [steps, n] bool."""
        return self.amounts > 0.05

    @property
    def sizes(self) -> Tensor:
        """The sizes [steps] of the batches."""
        return self.members.sum(1)


def participation(code: AuditedTraining, seed: int = 0) -> Participation | None:
    """Who takes part in the steps of a training on examples with a coordinate each; None if the
    model is not linear, so that no coordinate is an example's."""
    if not code.is_linear:
        return None
    lengths = LENGTH * code.claim.bound
    data = one_hot(list(range(EXAMPLES)), lengths, EXAMPLES)
    settings: dict[str, Any] = {"sample_rate": 1 / CYCLE, "steps": CYCLE * EPOCHS, "seed": seed}
    return Participation(code.train(data, noise_multiplier=NEGLIGIBLE, **settings).abs())


def sampling(code: AuditedTraining) -> Finding:
    """Batches are Poisson samples at the claimed rate."""
    seen, other = participation(code), participation(code, seed=1)
    if seen is None or other is None:
        return UNSEEN
    if torch.equal(seen.members, other.members):
        return refuted("The batches are the same for every seed.")
    return _amounts(seen) or _repetition(seen) or _law(seen) or NOTHING


def _amounts(seen: Participation) -> Finding | None:
    """What is wrong with how much an example adds."""
    added = seen.amounts[seen.members]
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
        return refuted("All epochs have the same batches, so an example's steps are no new draw.")
    return None


def _law(seen: Participation) -> Finding | None:
    """What is wrong with the number of examples in batches."""
    rate, members, sizes = 1 / CYCLE, seen.members, seen.sizes.double()
    if int(sizes.min()) == int(sizes.max()):
        return refuted(
            f"All batches have {int(sizes[0])} examples, those of Poisson samples vary: epsilons "
            "for Poisson samples do not hold for batches of a fixed size."
        )
    number, drawn = members.numel(), int(members.sum())
    if stats.binom.sf(drawn - 1, number, rate) < RARE:
        return refuted(
            f"An example is in a batch with probability {drawn / number:.3f}, and the account says "
            f"{rate:.3f}."
        )
    if stats.binom.cdf(drawn, number, rate) < RARE:
        return flagged(
            f"Examples are used at a rate of {drawn / number:.3f} instead of {rate:.3f}."
        )
    return None


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
