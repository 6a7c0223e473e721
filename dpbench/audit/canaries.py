"""Canaries: examples that move a sum as far as a method's sensitivity allows, in orthogonal
directions.

Each moves a coordinate of its own. If the method bounds every coordinate, each instead moves all of
them, up or down, in patterns that are orthogonal.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dpbench.learning.data.derive.users import Assignment, Population, Synthetic
from dpbench.learning.data.examples import Data, Split
from dpbench.step.clipping import Clip, DelegatingClip, Layerwise
from dpbench.system.seeds import generator

MAX_NORM, POINTS = 1e15, 4001
"""The largest gradient norm to try, and the number of norms up to it."""

WRONG_LOGIT = 5.0
"""The logit of the wrong class, in a model of two: a probability of 99.3%, which still leaves both
classes with accurate float32 gradients."""


@dataclass(frozen=True)
class OneHotPatterns:
    """Canary i moves only coordinate i."""

    number: int
    shared = False

    def model(self) -> nn.Module:
        """A model that is linear in its parameters, which are 0, of inputs [B, 1] that are the
        canaries' numbers; the gradient of its output is the pattern, a vector of norm 1."""
        return EmbeddingModel(self.number)

    def sum_along(self, up: Tensor, down: Tensor) -> Tensor:
        """Sums [m] over the coordinates that each canary moves: of `up` [D] where it moves them up,
        of `down` [D] where it moves them down."""
        return up


class EmbeddingModel(nn.Module):
    """One parameter for each canary."""

    def __init__(self, size: int):
        super().__init__()
        self.numbers = nn.Embedding(size, 1)
        nn.init.zeros_(self.numbers.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.numbers(x.squeeze(-1).clamp(0, self.numbers.num_embeddings - 1).long())


@dataclass(frozen=True)
class WalshPatterns:
    """Each of `number` canaries moves all coordinates equally far, up or down: by a row of the
    Hadamard matrix of order `coordinates`, a power of two. Its rows are orthogonal."""

    number: int
    coordinates: int
    shared = True

    def signs(self, canaries: Tensor) -> Tensor:
        """The rows [k, D] of the canaries with these numbers [k]: the last row first, since the
        first has only ups."""
        bits = self.coordinates.bit_length() - 1
        # The matrix is the Kronecker product of two small ones.
        low, high = (walsh_transform(torch.eye(2**n)) for n in (bits // 2, bits - bits // 2))
        rows = self.coordinates - 1 - canaries
        parts = high[rows // len(low)].unsqueeze(2), low[rows % len(low)].unsqueeze(1)
        return (parts[0] * parts[1]).flatten(1)

    def model(self) -> nn.Module:
        return WalshModel(self)

    def sum_along(self, up: Tensor, down: Tensor) -> Tensor:
        half = (up - down).double() / 2
        (along,) = walsh_transform(half.unsqueeze(0))
        return along.flip(0)[: self.number] + (up - half).sum()


class WalshModel(nn.Module):
    """The scalar product of parameters and pattern."""

    def __init__(self, patterns: WalshPatterns):
        super().__init__()
        self.patterns = patterns
        self.linear = nn.Linear(patterns.coordinates, 1, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        numbers = x.squeeze(-1).clamp(0, self.patterns.number - 1).long()
        signs = self.patterns.signs(numbers).to(self.linear.weight)
        return self.linear(signs) / self.patterns.coordinates**0.5


Patterns = OneHotPatterns | WalshPatterns
"""The directions of the canaries' gradients; shared: whether each moves all coordinates."""


def walsh_transform(rows: Tensor) -> Tensor:
    """Each row [n, D] times the Hadamard matrix of order D, a power of two, in D log D."""
    for bit in range(rows.shape[1].bit_length() - 1):
        first, second = rows.view(len(rows), -1, 2, 2**bit).unbind(2)
        rows = torch.stack([first + second, first - second], 2).flatten(1)
    return rows


class TwoClassModel(nn.Module):
    """Logits (0, WRONG_LOGIT + length z) for the output z of `base`: where the first class is the
    target, the cross-entropy has about `length` times the gradient of z."""

    def __init__(self, base: nn.Module, length: float):
        super().__init__()
        self.base, self.length = base, length

    def forward(self, x: Tensor) -> Tensor:
        z = self.base(x)
        return torch.cat([torch.zeros_like(z), WRONG_LOGIT + self.length * z], 1)


@dataclass(frozen=True)
class CanaryModel:
    """The architecture of the patterns' model; `length` as for `TwoClassModel`."""

    patterns: Patterns
    length: float

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        model = self.patterns.model()
        return model if classes == 1 else TwoClassModel(model, self.length)


def coins(seed: int, stream: str, number: int) -> Tensor:
    """Fair coins [number] bool, by which canaries are in the data, of the stream of this name."""
    draw = generator(seed, stream, torch.device("cpu"))
    return torch.rand(number, generator=draw) < 0.5


@dataclass(frozen=True)
class Canaries:
    """A data set of canaries; a fair coin decides whether each is a training example.

    The model stays at 0, so that a target of -length/2 and the squared error give a gradient of
    norm `length` along the pattern. copies: examples per canary, where a canary is a user.
    """

    patterns: Patterns
    number: int
    length: float
    groups: tuple[str, ...] = ("all",)
    copies: int = 1
    classes: int = 1
    name = "canaries"
    shape: tuple[int, ...] = (1,)
    notes: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        return "regression" if self.classes == 1 else "classification"

    @property
    def train_size(self) -> int:
        return self.number * self.copies

    def included(self, seed: int) -> Tensor:
        """The coins [m] bool."""
        return coins(seed, "canaries' coins", self.number)

    def load(self, folder: Path, seed: int) -> Data:
        """Synthetic: nothing is read. The test set is the first canary, as it must not be empty."""
        numbers = self.included(seed).nonzero().flatten().repeat_interleave(self.copies)
        return Data(self.split(numbers), self.split(numbers[:1]))

    def split(self, numbers: Tensor) -> Split:
        """The canaries with these numbers."""
        targets = torch.full((len(numbers),), -self.length / 2)
        if self.classes > 1:
            targets = torch.zeros_like(numbers)
        return Split(numbers.float().unsqueeze(1), targets, numbers % len(self.groups))


@dataclass(frozen=True)
class CanaryUsers(Synthetic):
    """Users that each hold the copies of one canary, in order."""

    spread: float = 0.0
    assign: Assignment = lambda labels, sizes, draws: np.arange(len(labels))
    by_label: bool = False
    copies: int = 1

    def sizes(self, examples: int) -> list[int]:
        return [self.copies] * self.number

    def of(self, examples: Split, seed: int) -> Population:
        sizes = torch.full((len(examples) // self.copies,), self.copies)
        return Population(examples, torch.arange(len(examples)), sizes)


def worst_case_norm(clip: Clip) -> float:
    """The gradient norm, up to MAX_NORM, that is largest after clipping; the largest of several."""
    while isinstance(clip, DelegatingClip | Layerwise):
        clip = clip.clip  # the clip of one layer, at its initial bound
    lengths = np.geomspace(1e-6, MAX_NORM, POINTS)
    for _ in range(4):
        norms = torch.tensor(lengths, dtype=torch.float32)
        clipped = norms * clip.factors(norms, torch.zeros(len(norms), dtype=torch.long))
        best = int((clipped >= clipped.max() * (1 - 1e-6)).nonzero().max())
        low, high = lengths[best], lengths[min(best + 1, POINTS - 1)]
        lengths = np.geomspace(low, high, POINTS) if high > low else lengths[-1:].repeat(POINTS)
    # Slightly less, as engines round norms up.
    return float(norms[best]) * (1 - 1e-5)
