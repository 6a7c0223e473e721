"""Samplers: they draw the examples (or users) of each batch, and state their law for the ledger."""

import math
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Protocol

import torch
from torch import Tensor

from dpbench.privacy.ledger import Allocation, Poisson, Sampling, Shuffled, TruncatedPoisson
from dpbench.step.mechanism.streams import Stream, permutation, uniforms
from dpbench.system.errors import UserError
from dpbench.system.validate import integer

TOGETHER = 2**16
"""Draws of Poisson batches that are computed together: as many as fit in a cache."""

RARE = 1e-12
"""The probability per step of truncating a batch, at which the suggested limit hardly matters."""


def poisson_rate(train_size: int, batch_size: int, unit: str = "example") -> float:
    """The rate 1/ceil(n/B), so that ceil(n/B) steps make an epoch on average (Esipova et al. 2023,
    appendix B); UserError for a batch larger than the data."""
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
        """An endless iterator of index tensors [B] int64 into `size` units.

        An epoch depends only on the state of the stream when its first batch is drawn.
        """


class PoissonSampler:
    """Each unit is in each batch independently with probability q; batch sizes vary and may be 0.

    train_size and batch_size count units (examples or users). They are public configuration, and
    determine q and the expected batch size. cycle: each unit has its turn in every cycle-th step,
    at the same place of every cycle, and an epoch is a whole number of cycles (see
    `dpbench.privacy.ledger.Poisson`); None for cycles of an epoch, with q = 1.
    """

    def __init__(
        self, train_size: int, batch_size: int, unit: str = "example", cycle: int | None = 1
    ):
        if cycle is None:
            cycle, rate = round(1 / poisson_rate(train_size, batch_size, unit)), 1.0
        elif cycle > 1 and batch_size * cycle > train_size:
            raise UserError(
                f"{cycle} disjoint batches of {batch_size} need more than the {train_size} "
                f"training {unit}s: choose a smaller batch_size or bands."
            )
        else:
            rate = poisson_rate(train_size, batch_size * cycle, unit)
        self.law: Sampling = Poisson(rate, unit, cycle)
        self.rate, self.cycle = rate, cycle
        self.expected_batch_size = train_size * rate / cycle
        self.steps_per_epoch = cycle * round(1 / rate)

    def batches(self, size: int, stream: Stream) -> Iterator[Tensor]:
        if self.cycle == 1:
            while True:
                yield from poisson_batches(size, self.rate, self.steps_per_epoch, stream)
        members = self._members(size, stream)
        while True:
            for group in members:
                yield group[poisson_indices(len(group), self.rate, stream)]

    def _members(self, size: int, stream: Stream) -> list[Tensor]:
        """The units whose turn it is, by place in the cycle: that depends only on the stream's key
        and the unit's index, so that it is the same in all epochs."""
        places = stream.derived("places in the cycle").bits(size) % self.cycle
        return [(places == place).nonzero().flatten() for place in range(self.cycle)]


def poisson_indices(size: int, rate: float, stream: Stream) -> Tensor:
    """Indices [B] int64 below `size`, each independently with probability `rate`.

    The gaps between picks are geometric, by inverse transform of float64 uniforms, so only about
    size * rate draws are made, not `size`.
    """
    if rate == 1:
        return torch.arange(size)
    chunk = _usual_draws(size, rate)
    picks = torch.full((1,), -1.0, dtype=torch.float64)
    while picks[-1] < size:
        picks = torch.cat([picks, picks[-1] + _gaps(chunk, rate, stream).cumsum(0)])
    return picks[(picks >= 0) & (picks < size)].long()


def poisson_batches(size: int, rate: float, number: int, stream: Stream) -> Iterator[Tensor]:
    """`poisson_indices`, `number` times in a row: the same bits, mostly computed together, as calls
    take longer than the numbers."""
    chunk = _usual_draws(size, rate)
    together = max(1, TOGETHER // chunk) if rate < 1 else 1
    for first in range(0, number, together):
        several = min(together, number - first)
        before = stream.state_dict()
        if several > 1:
            picks = _gaps(several * chunk, rate, stream).view(several, chunk).cumsum(1).sub_(1)
            if picks[:, -1].min() >= size:
                sizes = (picks < size).sum(1).tolist()
                yield from (row[:n] for row, n in zip(picks.long(), sizes, strict=True))
                continue
            stream.load_state_dict(before)  # one of them takes more draws than usual
        # All at once, as the bits that decided it must not be drawn for anything in between.
        yield from [poisson_indices(size, rate, stream) for _ in range(several)]


def _usual_draws(size: int, rate: float) -> int:
    return int(size * rate + 6 * math.sqrt(size * rate) + 6)


def _gaps(number: int, rate: float, stream: Stream) -> Tensor:
    """The gaps between picks [number], geometric, whole numbers in float64."""
    return uniforms(stream, number).log_().div_(math.log1p(-rate)).ceil_()


class ShuffledSampler:
    """A fresh permutation each epoch, split as data loaders usually do; no accountant covers it."""

    def __init__(self, train_size: int, batch_size: int, unit: str = "example"):
        self.law: Sampling = Shuffled(batch_size, unit)
        rate = poisson_rate(train_size, batch_size, unit)
        self.expected_batch_size = train_size * rate
        self.steps_per_epoch = round(1 / rate)

    def batches(self, size: int, stream: Stream) -> Iterator[Tensor]:
        while True:
            yield from permutation(stream, size).tensor_split(self.steps_per_epoch)


class TruncatedSampler(PoissonSampler):
    """A Poisson sample, reduced to batch_limit units at random where it has more.

    The limit makes the size of the largest batch public and constant. Raises UserError without one.
    """

    def __init__(
        self,
        train_size: int,
        batch_size: int,
        unit: str = "example",
        batch_limit: int | None = None,
    ):
        super().__init__(train_size, batch_size, unit)
        self.size, self.unit = train_size, unit
        if batch_limit is None:
            raise UserError(f"sampler=truncated needs batch_limit: {self._harmless}")
        if integer("batch_limit", batch_limit) < self.expected_batch_size:
            warnings.warn(
                f"batch_limit={batch_limit} cuts most batches, whose sums are still divided by "
                f"their expected size of {self.expected_batch_size:.0f}: {self._harmless}",
                stacklevel=2,
            )
        self.law = TruncatedPoisson(self.rate, batch_limit, train_size, unit)
        self.limit = batch_limit

    @property
    def _harmless(self) -> str:
        """The sentence that names a limit at which hardly any batch is cut."""
        from scipy.stats import binom  # takes a second, and only messages need it

        enough = int(binom.isf(RARE, self.size, self.rate)) + 1
        return (
            f"at {min(enough, self.size)} hardly any batch of about "
            f"{self.expected_batch_size:.0f} {self.unit}s is truncated."
        )

    def batches(self, size: int, stream: Stream) -> Iterator[Tensor]:
        if size > self.size:
            raise UserError(
                f"the data set has more {self.unit}s than the declared {self.size}, which the "
                "account of truncated batches relies on: use sampler=poisson."
            )
        # One by one, as what is cut is drawn from the same stream.
        return (self._cut(poisson_indices(size, self.rate, stream), stream) for _ in count())

    def _cut(self, batch: Tensor, stream: Stream) -> Tensor:
        if len(batch) <= self.limit:
            return batch
        return batch[permutation(stream, len(batch))[: self.limit].sort().values]


class AllocationSampler:
    """Each unit is in exactly `participations` batches of an epoch, drawn uniformly.

    An epoch has ceil(n/B) steps for each participation. Units are independent, so batch sizes vary
    and may be 0 (balls and bins, Chua et al. 2024; random allocation, Feldman and Shenfeld 2025).
    """

    def __init__(
        self,
        train_size: int,
        batch_size: int,
        unit: str = "example",
        participations: int | None = None,
    ):
        self.turns = 1 if participations is None else participations
        integer("participations", self.turns)
        rate = poisson_rate(train_size, batch_size, unit)
        self.expected_batch_size = train_size * rate
        self.steps_per_epoch = self.turns * round(1 / rate)
        self.law: Sampling = Allocation(self.steps_per_epoch, self.turns, unit)

    def batches(self, size: int, stream: Stream) -> Iterator[Tensor]:
        while True:
            places = _subsets(size, self.turns, self.steps_per_epoch, stream).flatten()
            counts = places.bincount(minlength=self.steps_per_epoch).tolist()
            yield from (places.argsort(stable=True) // self.turns).split(counts)


def _subsets(size: int, number: int, of: int, stream: Stream) -> Tensor:
    """For each unit, `number` distinct numbers below `of` [size, number], by Floyd's algorithm."""
    chosen = torch.full((size, number), -1)
    for column, last in enumerate(range(of - number, of)):
        drawn = stream.bits(size) % (last + 1)
        repeated = (chosen == drawn.unsqueeze(1)).any(1)
        chosen[:, column] = torch.where(repeated, last, drawn)
    return chosen


SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "poisson": PoissonSampler,
    "shuffled": ShuffledSampler,
    "truncated": TruncatedSampler,
    "allocation": AllocationSampler,
}

OPTIONS = {"batch_limit": "truncated", "participations": "allocation"}
"""The settings that only one sampler has, with the name of that sampler."""


def make_sampler(
    name: str, train_size: int, batch_size: int, unit: str, cycle: int | None, **options: Any
) -> Sampler:
    """The sampler of that name; UserError for a setting (other than None) of another sampler, and
    for a sampler whose cycles no accountant covers. cycle: as for `PoissonSampler`."""
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if OPTIONS[option] != name:
            raise UserError(
                f"{option} belongs to sampler={OPTIONS[option]}: set that, or {option}=null."
            )
    if name == "poisson":
        return PoissonSampler(train_size, batch_size, unit, cycle)
    if cycle != 1 and name != "shuffled":  # no accountant covers shuffled batches anyway
        raise UserError(
            f"sampler={name} cannot be accounted for with noise correlated over {cycle or 'all'} "
            "steps: use sampler=poisson."
        )
    return SAMPLERS[name](train_size, batch_size, unit, **given)
