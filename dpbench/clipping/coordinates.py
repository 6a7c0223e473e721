"""Clipping each coordinate of each gradient by itself."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dpbench.clipping.clip import Bound, Fixed, checked_bound
from dpbench.errors import UserError
from dpbench.gradients import Gradients


@dataclass(frozen=True)
class Coordinates(Fixed):
    """Every coordinate of every gradient brought into [-G, G] (the note, section 1).

    One example then moves no coordinate of the sum by more than G, and all of them together by
    G sqrt(size) in L2: that is the sensitivity. Every engine can, as it only needs the gradients
    themselves, but all of them [B, D] in memory. size: D.
    """

    bound: float
    size: int | None = None
    per_coordinate = True

    def __post_init__(self) -> None:
        checked_bound("the clipping bound", self.bound)

    @property
    def coordinates(self) -> int | None:  # type: ignore[override]
        return self.size

    @property
    def sensitivity(self) -> Bound:
        if self.size is None:
            raise UserError("a clip per coordinate has no L2 sensitivity before its for_size.")
        return self.bound * math.sqrt(self.size)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return torch.ones_like(norms)

    def reduce(self, gradients: Gradients, factors: Tensor) -> Tensor:
        rows = gradients.stack()
        # A GPU is not asked whether it is needed: it would have to be waited for.
        if factors.is_cuda or not factors.all():
            rows = rows.masked_fill((factors == 0).unsqueeze(1), 0)
        return rows.clamp(-self.bound, self.bound).sum(0)

    def scaled(self, by: float) -> "Coordinates":
        return replace(self, bound=self.bound * by)

    def for_size(self, size: int) -> "Coordinates":
        return replace(self, size=size)
