"""Who takes part in the steps of a training, seen on examples that have a coordinate each."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from dpbench.audit.code.audited import NEGLIGIBLE, AuditedTraining
from dpbench.audit.code.examples import LENGTH, one_hot
from dpbench.audit.code.task import AuditBatch, skipped

EXAMPLES, CYCLE, EPOCHS = 256, 8, 24
"""Examples of a training whose epochs have CYCLE batches, and its epochs."""

STEPS = CYCLE * EPOCHS

LEAST_EXAMPLES, LEAST_BATCH, LEAST_RATE = 250, 31.0, 1 / 64
"""Of trainings at the claimed rate. A smaller rate would need more coordinates than most code can
take: then the batches are those of LEAST_RATE."""

OF_NONE = 64
"""Coordinates of no example, which have only noise."""

UNSEEN = skipped("The model is not linear: who is in a batch is only seen there.")


@dataclass(frozen=True)
class Participation:
    """How much each example adds in each step at a sampling rate: amounts [steps, n]."""

    amounts: Tensor
    rate: float

    @property
    def members(self) -> Tensor:
        """Who is in which batch [steps, n] bool."""
        return self.amounts > 0.05

    @property
    def sizes(self) -> Tensor:
        """The sizes [steps] of the batches."""
        return self.members.sum(1)

    @property
    def unit(self) -> float:
        """What an example adds, as a rule: not 1 where code rounds the expected batch size."""
        return float(self.amounts[self.members].median()) if self.members.any() else 1.0


@lru_cache(maxsize=2)
def in_epochs(code: AuditedTraining, seed: int = 0) -> Participation:
    """Participation at a rate of 1/CYCLE, where code that shuffles has epochs of CYCLE batches."""
    bound, rate = code.claim.bound, 1 / CYCLE
    data = one_hot(list(range(EXAMPLES)), LENGTH * bound, EXAMPLES)
    sums = code.train(data, noise_multiplier=NEGLIGIBLE, sample_rate=rate, steps=STEPS, seed=seed)
    return Participation(sums.abs(), rate)


def claimed_rate(code: AuditedTraining) -> float:
    """The claimed sampling rate, or LEAST_RATE."""
    return max(LEAST_RATE, code.claim.sample_rate)


def uneven_sizes(rate: float) -> list[int]:
    """Numbers of examples of which a batch is no whole number, if there are any: one that loaders
    round up, and one that they round down."""
    least = max(LEAST_EXAMPLES, math.ceil(LEAST_BATCH / rate))
    sizes = range(least, least + 64)
    return sorted({min(sizes, key=lambda n: abs(n * rate % 1 - part)) for part in (0.6, 0.3)})


def kinds(number: int) -> dict[str, Tensor]:
    """Which of so many examples are of a kind [n] bool, in words."""
    numbers = torch.arange(number)
    return {"with a positive target": numbers % 5 == 0, "with a large error": numbers % 7 == 0}


@lru_cache(maxsize=2)
def as_claimed(code: AuditedTraining, number: int) -> Participation:
    """Participation of so many examples of all kinds at the claimed rate."""
    sums = claimed_releases(code, number, NEGLIGIBLE)
    return Participation(sums[:, :number].abs(), claimed_rate(code))


def claimed_releases(code: AuditedTraining, number: int, noise_multiplier: float) -> Tensor:
    """The noisy sums [steps, n + OF_NONE] of a training on them."""
    positive, large = kinds(number).values()
    lengths = torch.where(large, 16.0, 1.0) * LENGTH * code.claim.bound
    data = one_hot(list(range(number)), lengths, number + OF_NONE)
    data = AuditBatch(data.inputs, data.targets.where(~positive, -data.targets))
    rate = claimed_rate(code)
    return code.train(data, noise_multiplier=noise_multiplier, sample_rate=rate, steps=STEPS)
