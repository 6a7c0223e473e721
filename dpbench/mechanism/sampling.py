"""Samplers: which examples (or users) make a batch, and the law that the ledger is told.

The law is the sampler's own: nothing else says how batches were drawn.
"""

import math
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from dpbench.errors import UserError
from dpbench.mechanism.streams import Stream, permutation, uniforms
from dpbench.privacy.ledger import Poisson, Sampling, Shuffled


def poisson_rate(train_size: int, batch_size: int, unit: str = "example") -> float:
    """The rate 1/ceil(n/B), so that ceil(n/B) steps make an epoch on average.

    Esipova et al. 2023, appendix B. Raises UserError for a batch larger than the data.
    """
    if batch_size > train_size:
        raise UserError(
            f"batch_size={batch_size} is larger than the {train_size} training {unit}s; "
            f"choose at most {train_size}."
        )
    return 1 / math.ceil(train_size / batch_size)


class Sampler(Protocol):
    """Draws the logical batches of a run."""

    law: Sampling
    expected_batch_size: float
    steps_per_epoch: int

    def batches(self, size: int, stream: Stream) -> Iterator[Tensor]:
        """Index tensors [B] int64 into `size` examples, without end.

        An epoch depends on nothing but the stream as it is when its first batch is drawn.
        """
        ...


class PoissonSampler:
    """Each unit is in each batch with probability q, on its own: batches vary, and may be empty.

    train_size and batch_size are public configuration; they fix q and the expected batch size. They
    count units, which are examples or users.
    """

    def __init__(self, train_size: int, batch_size: int, unit: str = "example"):
        rate = poisson_rate(train_size, batch_size, unit)
        self.law: Sampling = Poisson(rate, unit)
        self.rate = rate
        self.expected_batch_size = train_size * rate
        self.steps_per_epoch = round(1 / rate)

    def batches(self, size: int, stream: Stream) -> Iterator[Tensor]:
        while True:
            yield poisson_indices(size, self.rate, stream)


def poisson_indices(size: int, rate: float, stream: Stream) -> Tensor:
    """The numbers [B] int64 below `size` that a coin of that rate picks, each on its own.

    The gaps between picks are geometric, by inverse transform of float64 uniforms, so only about
    size * rate draws are made, not `size`.
    """
    if rate == 1:
        return torch.arange(size)
    likely = int(size * rate + 6 * math.sqrt(size * rate) + 6)
    picks = torch.full((1,), -1.0, dtype=torch.float64)
    while picks[-1] < size:
        gaps = uniforms(stream, likely).log_().div_(math.log1p(-rate)).ceil_()
        picks = torch.cat([picks, picks[-1] + gaps.cumsum(0)])
    return picks[(picks >= 0) & (picks < size)].long()


class ShuffledSampler:
    """A fresh permutation each epoch, cut into batches: the usual loader, which has no account."""

    def __init__(self, train_size: int, batch_size: int, unit: str = "example"):
        self.law: Sampling = Shuffled(batch_size, unit)
        rate = poisson_rate(train_size, batch_size, unit)
        self.expected_batch_size = train_size * rate
        self.steps_per_epoch = round(1 / rate)

    def batches(self, size: int, stream: Stream) -> Iterator[Tensor]:
        while True:
            yield from permutation(stream, size).tensor_split(self.steps_per_epoch)


SAMPLERS: dict[str, Callable[[int, int, str], Sampler]] = {
    "poisson": PoissonSampler,
    "shuffled": ShuffledSampler,
}
