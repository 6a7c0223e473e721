"""Canaries: examples that move a sum as far as a method's sensitivity allows, and no other's place.

Either each has a coordinate of its own, or, where every coordinate is bounded, each moves all of
them in a pattern of random signs: patterns of thousands of coordinates are nearly orthogonal.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dpbench.clipping import Clip, Layerwise
from dpbench.clipping.quantile import Quantile
from dpbench.data.dataset import Data, Split
from dpbench.data.derive.users import Population, Users
from dpbench.seeds import generator

LONGEST, POINTS = 1e15, 4001
"""The longest gradient that is tried, and how many lengths up to there."""


class Patterns(Protocol):
    """The directions of the canaries' gradients.

    shared: whether each moves all coordinates, and not one alone.
    """

    shared: bool

    @property
    def coordinates(self) -> int:
        """How many coordinates a gradient has."""
        ...

    def inputs(self, canaries: Tensor) -> Tensor:
        """The inputs [k, ...] float32 of the canaries of these numbers [k]."""
        ...

    def model(self) -> nn.Module:
        """A model whose output is linear in its parameters, all of them 0: of one input, the
        gradient is the pattern."""
        ...

    def along(self, up: Tensor, down: Tensor) -> Tensor:
        """Sums [m] over each canary's coordinates: of `up` [D] where it moves them up, of `down`
        where down, and of nothing where it does not."""
        ...


@dataclass(frozen=True)
class OneEach:
    """Canary i moves coordinate i alone."""

    number: int
    shared = False

    @property
    def coordinates(self) -> int:
        return self.number

    def inputs(self, canaries: Tensor) -> Tensor:
        return canaries.float().unsqueeze(1)

    def model(self) -> nn.Module:
        return Table(self.number)

    def along(self, up: Tensor, down: Tensor) -> Tensor:
        return up


class Table(nn.Module):
    """One number for each canary; inputs [B, 1] are canaries' numbers."""

    def __init__(self, size: int):
        super().__init__()
        self.numbers = nn.Embedding(size, 1)
        nn.init.zeros_(self.numbers.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.numbers(x.squeeze(-1).clamp(0, self.numbers.num_embeddings - 1).long())


@dataclass(frozen=True, eq=False)
class Signs:
    """Each canary moves all coordinates alike far, up or down: signs [m, D] of -1 and 1."""

    signs: Tensor
    shared = True

    @property
    def coordinates(self) -> int:
        return self.signs.shape[1]

    def inputs(self, canaries: Tensor) -> Tensor:
        return self.signs[canaries]

    def model(self) -> nn.Module:
        linear = nn.Linear(self.coordinates, 1, bias=False)
        nn.init.zeros_(linear.weight)
        return linear

    def along(self, up: Tensor, down: Tensor) -> Tensor:
        half = (up - down) / 2
        return self.signs @ half.to(self.signs) + (up - half).sum()


def random_signs(number: int, coordinates: int, seed: int) -> Signs:
    """Patterns of independent fair signs."""
    draw = generator(seed, "canaries' signs", torch.device("cpu"))
    bits = torch.randint(0, 2, (number, coordinates), generator=draw, dtype=torch.int8)
    return Signs(bits.mul_(2).sub_(1).float())


@dataclass(frozen=True)
class Model:
    """The architecture of a canaries' model."""

    patterns: Patterns

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return self.patterns.model()


@dataclass(frozen=True)
class Canaries:
    """The data set: of all canaries, those for which a fair coin says so are training examples.

    Of the squared error of a model that stays at 0, a target of -length/2 makes a gradient of
    length `length` along the pattern. copies: examples of each canary, who is then a user.
    """

    patterns: Patterns
    number: int
    length: float
    groups: tuple[str, ...] = ("all",)
    copies: int = 1
    name = "canaries"
    task = "regression"
    classes = 1
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.patterns.inputs(torch.zeros(1, dtype=torch.long)).shape[1:])

    @property
    def train_size(self) -> int:
        return self.number * self.copies

    def included(self, seed: int) -> Tensor:
        """The coins [m] bool."""
        draw = generator(seed, "canaries' coins", torch.device("cpu"))
        return torch.rand(self.number, generator=draw) < 0.5

    def load(self, folder: Path, seed: int) -> Data:
        """Made up; nothing is read. The test set is the first canary, since there must be one."""
        numbers = self.included(seed).nonzero().flatten().repeat_interleave(self.copies)
        return Data(self.split(numbers), self.split(numbers[:1]))

    def split(self, numbers: Tensor) -> Split:
        """The canaries of these numbers."""
        targets = torch.full((len(numbers),), -self.length / 2)
        return Split(self.patterns.inputs(numbers), targets, numbers % len(self.groups))


@dataclass(frozen=True)
class CanaryUsers(Users):
    """Canaries as users, each with all of its copies."""

    copies: int = 1

    def sizes(self, examples: int) -> list[int]:
        return [self.copies] * self.number

    def of(self, examples: Split, seed: int) -> Population:
        members = torch.arange(len(examples)).view(-1, self.copies)
        return Population(examples, members, torch.full((len(members),), self.copies))


def canary_users(number: int, copies: int) -> CanaryUsers:
    """So many users with so many examples each, in their order."""
    return CanaryUsers(
        number, 0.0, lambda labels, sizes, draws: np.arange(len(labels)), False, copies
    )


def worst_length(clip: Clip) -> float:
    """The length of gradient that a clip leaves longest, and the longest of such lengths, up to
    LONGEST."""
    while isinstance(clip, Layerwise | Quantile):
        clip = clip.clip  # of one layer, and at its first bound
    lengths = np.geomspace(1e-6, LONGEST, POINTS)
    for _ in range(4):
        norms = torch.tensor(lengths, dtype=torch.float32)
        clipped = norms * clip.factors(norms, torch.zeros(len(norms), dtype=torch.long))
        best = int((clipped >= clipped.max() * (1 - 1e-6)).nonzero().max())
        low, high = lengths[best], lengths[min(best + 1, POINTS - 1)]
        lengths = np.geomspace(low, high, POINTS) if high > low else lengths[-1:].repeat(POINTS)
    # A little less, as engines round norms up.
    return float(norms[best]) * (1 - 1e-5)
