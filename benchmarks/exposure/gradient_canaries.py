"""Gradient canaries inserted into a real run: examples whose gradients the attacker chooses.

Data, model, sampler, engine, clip, noise and updates are those of the run. Canaries are appended to
its training examples, each included by a fair coin. Their gradients, which are inserted before the
clip, are non-zero in one coordinate each, which no other canary shares (the Dirac canaries of
Nasr et al. 2023 and Steinke et al. 2023). Real examples move these coordinates too, which partly
hides a canary, so the attacker chooses the coordinates that they move least. In
`dpbench.audit.game` there are only canaries.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch, Split
from dpbench.step.clipping import Clip, Problem
from dpbench.step.gradients import Engine, Gradients, Layer
from dpbench.step.mechanism.gradient import Gradient, ReleasedState
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system.seeds import generator

SAMPLE, CHUNK = 512, 64
"""The number of examples whose gradients decide which coordinates are quiet, and of those processed
at once."""


class DiracGradients(Gradients):
    """Gradients [B] of one norm that are non-zero in one of `size` coordinates each.

    losses [B] are NaN, which mean losses leave out.
    """

    def __init__(self, coordinates: Tensor, length: float, size: int, layers: Sequence[Layer]):
        self.coordinates, self.length, self.size, self.layers = coordinates, length, size, layers
        self.losses = torch.full(coordinates.shape, torch.nan, device=coordinates.device)

    @property
    def norms(self) -> Tensor:
        return torch.full_like(self.losses, self.length)

    @property
    def layer_norms(self) -> Tensor:
        return self.length * self._in_layers().to(self.losses)

    def _in_layers(self) -> Tensor:
        """Whether each gradient is in each layer [B, L] bool."""
        starts = torch.tensor([layer.at.start for layer in self.layers])
        stops = torch.tensor([layer.at.stop for layer in self.layers])
        coordinates = self.coordinates.cpu().unsqueeze(1)
        return ((starts <= coordinates) & (coordinates < stops)).to(self.coordinates.device)

    def shifts(self, factors: Tensor) -> Tensor:
        """The shift of each gradient's coordinate [B], with clipping factors [B] or [B, L]."""
        if factors.dim() == 2:
            factors = (factors * self._in_layers()).sum(1)
        return factors * self.length

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return factors.new_zeros(self.size).index_add_(0, self.coordinates, self.shifts(factors))

    def dot(self, vector: Tensor) -> Tensor:
        return self.length * vector[self.coordinates]

    @property
    def rounding(self) -> Tensor:
        return torch.zeros_like(self.layer_norms, dtype=torch.float64)

    def double(self) -> "DiracGradients":
        return self

    def stack(self) -> Tensor:
        rows = torch.arange(len(self.coordinates), device=self.coordinates.device)
        stacked = self.norms.new_zeros(len(rows), self.size)
        stacked[rows, self.coordinates] = self.length
        return stacked


class JoinedGradients(Gradients):
    """The gradients of real examples, followed by those of canaries."""

    def __init__(self, real: Gradients, canaries: DiracGradients):
        self.real, self.canaries = real, canaries
        self.losses = torch.cat([real.losses, canaries.losses.to(real.losses)])

    @property
    def norms(self) -> Tensor:
        return torch.cat([self.real.norms, self.canaries.norms.to(self.real.norms)])

    @property
    def layer_norms(self) -> Tensor:
        return torch.cat([self.real.layer_norms, self.canaries.layer_norms])

    def weighted_sum(self, factors: Tensor) -> Tensor:
        real, canaries = factors.split([len(self.real.losses), len(self.canaries.coordinates)])
        return self.real.weighted_sum(real) + self.canaries.weighted_sum(canaries)

    def dot(self, vector: Tensor) -> Tensor:
        return torch.cat([self.real.dot(vector), self.canaries.dot(vector)])

    @property
    def rounding(self) -> Tensor:
        return torch.cat([self.real.rounding, self.canaries.rounding])

    def double(self) -> "JoinedGradients":
        return JoinedGradients(self.real.double(), self.canaries)

    def stack(self) -> Tensor:
        return torch.cat([self.real.stack(), self.canaries.stack()])


@dataclass(frozen=True)
class GradientCanaries:
    """Canaries: their coordinates [m] out of `size`, their groups [m], and whether each is in the
    data [m] bool. length: the norm of their gradients."""

    coordinates: Tensor
    groups: Tensor
    included: Tensor
    length: float
    size: int

    def gradients(self, numbers: Tensor, layers: Sequence[Layer]) -> DiracGradients:
        """The gradients of the canaries with these numbers [B]."""
        return DiracGradients(self.coordinates[numbers], self.length, self.size, layers)

    def shifts(self, clip: Clip, layers: Sequence[Layer]) -> Tensor:
        """The shift of each canary's coordinate [m], in units of the clip's sensitivity."""
        gradients = self.gradients(torch.arange(len(self.coordinates)), layers)
        shifts = gradients.shifts(clip.factors(clip.norms(gradients), self.groups))
        return (shifts / clip.sensitivity.bound).double()


def draw_canaries(
    coordinates: Tensor, size: int, groups: int, length: float, seed: int
) -> GradientCanaries:
    """Canaries on these coordinates [m], in random groups, included by fair coins."""
    draw = generator(seed, "inserted canaries", torch.device("cpu"))
    group = torch.randint(groups, (len(coordinates),), generator=draw)
    included = torch.rand(len(coordinates), generator=draw) < 0.5
    return GradientCanaries(coordinates, group, included, length, size)


def quiet_coordinates(step: PrivateStep, examples: Split, number: int, seed: int) -> Tensor:
    """The coordinates [m] that real examples move least at the step's parameters, by the mean
    square of a few gradients; ties are in random order."""
    size = len(step.engine.parameters)
    squares = torch.zeros(size, dtype=torch.float64)
    for indices in torch.arange(min(SAMPLE, len(examples))).split(CHUNK):
        squares += step.engine(examples.at(indices)).stack().double().square().sum(0)
    shuffled = torch.randperm(size, generator=generator(seed, "places", torch.device("cpu")))
    return shuffled[squares[shuffled].argsort(stable=True)[:number]]


@dataclass(frozen=True)
class MixedBatch(Batch):
    """Real examples, and canaries by their numbers [k]. Groups [R + k] and targets [R + k] cover
    both; inputs [R, ...] cover only real examples, since a canary has none."""

    numbers: Tensor = field(kw_only=True)

    @property
    def real(self) -> Batch:
        count = len(self.inputs)
        return Batch(self.inputs, self.targets[:count], self.groups[:count])


@dataclass(frozen=True)
class MixedSplit(Split):
    """Training examples, to which the included ones of some canaries are appended."""

    canaries: GradientCanaries = field(kw_only=True)

    def __len__(self) -> int:
        return len(self.targets) + int(self.canaries.included.sum())

    def at(self, indices: Tensor) -> Batch:
        examples = len(self.targets)
        real = super().at(indices[indices < examples])
        included = self.canaries.included.nonzero().flatten()
        numbers = included[indices[indices >= examples] - examples]
        groups = torch.cat([real.groups, self.canaries.groups[numbers]])
        targets = torch.cat([real.targets, torch.zeros_like(real.targets[:1]).expand(len(numbers))])
        return MixedBatch(real.inputs, targets, groups, numbers=numbers)


def with_canaries(examples: Split, canaries: GradientCanaries) -> MixedSplit:
    """The examples with the canaries appended."""
    parts = examples.inputs, examples.targets, examples.groups, examples.normalize
    return MixedSplit(*parts, canaries=canaries)


@dataclass(frozen=True)
class CanaryInsertion(Gradient):
    """The gradients of a method, `base`, for real examples, followed by those of canaries."""

    base: Gradient
    canaries: GradientCanaries

    def bind(self, problem: Problem) -> Self:
        return replace(self, base=self.base.bind(problem))

    def advance(self, theta: Tensor, counts: Tensor | None) -> Self:
        return replace(self, base=self.base.advance(theta, counts))

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        if not isinstance(batch, MixedBatch):  # synthetic examples, among which are no canaries
            return self.base(engine, batch, clip, released)
        spikes = self.canaries.gradients(batch.numbers, engine.parameters.layers)
        return JoinedGradients(self.base(engine, batch.real, clip, released), spikes)
