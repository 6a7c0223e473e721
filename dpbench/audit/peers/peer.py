"""What an audit asks of another library: to train canaries, and to account for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

LENGTH = 1024.0
"""Of a canary's gradient: far above the bound of the clip, and a power of two, which the clip
leaves at exactly 1."""


@dataclass(frozen=True)
class Task:
    """What another library is to train.

    size: coordinates, one for each canary. members: numbers [k] of the canaries in the data.
    blanks: other examples, whose gradient is 0. rate, noise_multiplier: of each of `steps` steps.
    """

    size: int
    members: Tensor
    rate: float
    noise_multiplier: float
    steps: int
    seed: int
    blanks: int = 0

    @property
    def numbers(self) -> Tensor:
        """The coordinate of each example [n]."""
        return torch.cat([self.members, torch.zeros(self.blanks, dtype=torch.long)])

    @property
    def targets(self) -> Tensor:
        """Of the squared error of a model at 0: [n] float32, with gradients of LENGTH, or of 0."""
        lengths = [torch.full((len(self.members),), LENGTH), torch.zeros(self.blanks)]
        return -torch.cat(lengths) / 2


class Heard(NamedTuple):
    """What one step released: the noisy sum [D] in units of the bound of the clip, and by what
    factor that bound then changed."""

    noisy: Tensor
    rebound: float = 1.0


class Peer(Protocol):
    """One training of a task by another library, with its own sampler, clip, noise and accountant.

    library: its name and version. accountant: the name of what `epsilon` is by.
    """

    library: str
    accountant: str

    def steps(self) -> Iterator[Heard]:
        """All steps of the task, one by one."""
        ...

    def history(self) -> list[tuple[float, float, int]]:
        """What it accounts for: noise multiplier, sampling rate and number of the steps it took."""
        ...

    def epsilon(self, delta: float) -> float:
        """What the library says of the steps that it took."""
        ...
