"""Batches whose gradients are far above the bound, below it, in one direction or in several."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dpbench.audit.code.audited import FEATURES, Audited
from dpbench.audit.code.task import Batch

LENGTH = 1024.0
"""The gradient norm of a large example, in units of the bound: a power of two, so that it is
clipped to exactly 1."""

SIZE = 6


def one_hot(
    indices: list[int], lengths: Tensor | float = LENGTH, features: int = FEATURES
) -> Batch:
    """Examples that each have one input of 1; squared errors at 0 have these norms."""
    inputs = torch.zeros(len(indices), features)
    inputs[range(len(indices)), indices] = 1
    return Batch(inputs, -torch.as_tensor(lengths).expand(len(indices)).float() / 2)


def dense(lengths: Tensor, seed: int = 0) -> Batch:
    """Examples with random inputs, and targets of random sign."""
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(len(lengths), FEATURES, generator=draw)
    signs = torch.randint(0, 2, lengths.shape, generator=draw) * 2 - 1
    return Batch(inputs, (signs * lengths / 2).float())


def probes(bound: float) -> Mapping[str, Batch]:
    """Batches of SIZE examples, by what they have in common."""
    apart, large = list(range(SIZE)), torch.full((SIZE,), LENGTH) * bound
    around = torch.logspace(-2, 1, SIZE) * bound
    return {
        "examples that share no coordinate": one_hot(apart, large),
        "examples of one direction": one_hot([0] * SIZE, large),
        "large random examples": dense(large),
        "examples with large inputs": dense(large).scaled(100.0),
        "examples of all sizes": dense(torch.logspace(-3, 3, SIZE) * bound),
        "examples around the bound": one_hot(apart, around),
        "examples around the bound, of one direction": one_hot([0] * SIZE, around),
    }


def usual(bound: float) -> Batch:
    """Three large examples and a small one."""
    return dense(torch.tensor([LENGTH, LENGTH, LENGTH, 0.1]) * bound, seed=1)


def is_linear(code: Audited) -> bool:
    """Whether an example with one input moves only the parameter of this input, by the bound."""
    alone = code.exact_sum(one_hot([1, 3], torch.tensor(LENGTH * code.claim.bound), 4))
    return len(alone) == 4 and bool((alone[[0, 2]].abs() < 0.01).all() and alone.any())
