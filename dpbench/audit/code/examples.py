"""Examples on which code is audited: made up, or its owner's."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from dpbench.audit.code.task import AuditBatch, reporting_errors
from dpbench.audit.peers.peer import LENGTH
from dpbench.system.errors import UserError

FEATURES, SIZE, MANY = 32, 6, 16
"""Inputs of an example, examples of a probe, and of a large batch."""

Unlike = tuple[AuditBatch, AuditBatch, AuditBatch]
"""Batches whose gradients differ much: a small example, a large one, and four others."""


def one_hot(
    indices: list[int], lengths: Tensor | float = LENGTH, features: int = FEATURES
) -> AuditBatch:
    """Examples that each have one input of 1; squared errors at 0 have these norms."""
    inputs = torch.zeros(len(indices), features)
    inputs[range(len(indices)), indices] = 1
    return AuditBatch(inputs, -torch.as_tensor(lengths).expand(len(indices)).float() / 2)


def dense(lengths: Tensor, seed: int = 0) -> AuditBatch:
    """Examples with random inputs, and targets of random sign."""
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(len(lengths), FEATURES, generator=draw)
    signs = torch.randint(0, 2, lengths.shape, generator=draw) * 2 - 1
    return AuditBatch(inputs, (signs * lengths / 2).float())


class MadeUp:
    """Examples with FEATURES inputs, whose squared errors have gradients of any size. bound: the
    norm to which these are clipped."""

    made_up = True

    def probes(self, bound: float) -> Mapping[str, AuditBatch]:
        """Batches of SIZE examples, by what they have in common."""
        apart, large = list(range(SIZE)), torch.full((SIZE,), LENGTH) * bound
        around = torch.logspace(-2, 1, SIZE) * bound
        falling = torch.tensor([*torch.logspace(3, -3, SIZE - 1), 0.0]) * bound
        return {
            "examples that share no coordinate": one_hot(apart, large),
            "examples of one direction": one_hot([0] * SIZE, large),
            "large random examples": dense(large),
            "examples with large inputs": dense(large).scaled(100.0),
            "examples of all sizes, also 0": dense(falling),
            "examples around the bound": one_hot(apart, around),
            "examples around the bound, of one direction": one_hot([0] * SIZE, around),
        }

    def usual(self, bound: float) -> AuditBatch:
        """Three large examples and a small one."""
        return dense(torch.tensor([LENGTH, LENGTH, LENGTH, 0.1]) * bound, seed=1)

    def many(self, bound: float) -> AuditBatch:
        """MANY large examples."""
        return dense(torch.full((MANY,), LENGTH) * bound, seed=2)

    def tiny(self, bound: float) -> AuditBatch:
        """Four examples with tiny gradients."""
        return dense(torch.full((4,), 1e-3) * bound)

    def copies(self, bound: float, number: int) -> AuditBatch:
        """So many times the same large example."""
        return one_hot([0] * number, LENGTH * bound)

    def unlike(self, bound: float) -> Unlike:
        """Batches whose gradients differ much."""
        small, large = (one_hot([1], length * bound) for length in (1e-3, LENGTH))
        return small, large, self.copies(bound, 4)


class Given:
    """Examples of the code's owner: at least MANY, whose gradients are what they are."""

    made_up = False

    def __init__(self, pool: AuditBatch):
        self._pool = pool

    def probes(self, bound: float) -> Mapping[str, AuditBatch]:
        return {
            "examples": self._pool.at(range(SIZE)),
            "other examples": self._pool.at(range(SIZE, 2 * SIZE)),
            "copies of one example": self.copies(bound, SIZE),
        }

    def usual(self, bound: float) -> AuditBatch:
        return self._pool.at(range(4))

    def many(self, bound: float) -> AuditBatch:
        return self._pool.at(range(MANY))

    def tiny(self, bound: float) -> AuditBatch:
        return self._pool.at(range(4, 8))

    def copies(self, bound: float, number: int) -> AuditBatch:
        return self._pool.at([0] * number)

    def unlike(self, bound: float) -> Unlike:
        return self._pool.at([1]), self._pool.at([2]), self.copies(bound, 4)


ExampleBatches = MadeUp | Given
"""Batches by their gradients."""


def given(name: str, make: Callable[[int], Any]) -> Given:
    """The examples `make(MANY)`, a pair of inputs [MANY, ...] and targets [MANY, ...]; UserError
    for fewer, and for another return value."""
    with reporting_errors(name):
        made = make(MANY)
        if not (isinstance(made, tuple) and len(made) == 2):
            raise UserError(f"{name} must return a pair of arrays: inputs and targets.")
        pool = AuditBatch(*map(torch.as_tensor, made))
    if min(map(len, (pool.inputs, pool.targets))) < MANY:
        raise UserError(f"{name} was asked for {MANY} examples, and returned fewer.")
    return Given(pool)
