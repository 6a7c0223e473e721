"""Clipping each coordinate of each gradient separately."""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.step.clipping.clip import OneBound, Sensitivity
from dpbench.step.clipping.problem import Problem
from dpbench.step.gradients import Gradients
from dpbench.step.gradients.norms import unread


@dataclass(frozen=True)
class Coordinates(OneBound):
    """Clamps every coordinate of every gradient to [-G, G] (the note on DP-SignSGD, section 1).

    One example then moves each coordinate of the sum by at most G, hence the sum by the sensitivity
    G sqrt(size) in L2. Gradients are materialised a few columns at a time. size: D, once known.
    """

    bound: float
    size: int | None = None

    @property
    def sensitivity(self) -> Sensitivity:
        bound = math.inf if self.size is None else self.bound * math.sqrt(self.size)
        return Sensitivity(bound, per_coordinate=True, coordinates=self.size)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return torch.ones_like(norms)

    def reduce(self, gradients: Gradients, factors: Tensor) -> Tensor:
        masked = unread(factors) or not factors.all()
        excluded = (factors == 0).unsqueeze(1)
        sums = []
        for block in gradients.blocks():
            rows = block.masked_fill(excluded, 0) if masked else block
            sums.append(rows.clamp(-self.bound, self.bound).sum(0))
        return torch.cat(sums)

    def bind(self, problem: Problem) -> Self:
        return replace(self, size=problem.size)
