"""The interface of other libraries in an audit: they train on canaries, and account for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

LENGTH = 1024.0
"""The norm of a canary's gradient: far above the clipping bound, and a power of two, so that it is
clipped to exactly 1."""


@dataclass(frozen=True)
class PeerTask:
    """A training task for another library.

    size: coordinates, one per canary. members: numbers [k] of the canaries in the data. blanks:
    other examples, whose gradient is 0. rate, noise_multiplier: of each of `steps` steps.
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
        """Targets [n] float32 whose squared errors at 0 have gradients of norm LENGTH, or 0."""
        lengths = [torch.full((len(self.members),), LENGTH), torch.zeros(self.blanks)]
        return -torch.cat(lengths) / 2


class StepRelease(NamedTuple):
    """The release of one step: the noisy sum [D] in units of the clipping bound, and the factor by
    which that bound then changed."""

    noisy: Tensor
    bound_change: float = 1.0


class Peer(Protocol):
    """One training of a task by another library, with its own sampler, clip, noise and accountant.
    library: its name and version. accountant: the name of its accountant."""

    library: str
    accountant: str

    def steps(self) -> Iterator[StepRelease]:
        """All steps of the task, one by one."""

    def history(self) -> list[tuple[float, float, int]]:
        """What the library has accounted for: (noise multiplier, sampling rate, steps)."""

    def epsilon(self, delta: float) -> float:
        """The library's epsilon for the steps it has taken."""
