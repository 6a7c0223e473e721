"""The base class of clips that change some operations of another clip."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from dpbench.step.clipping.clip import Clip, Sensitivity
from dpbench.step.clipping.problem import Problem
from dpbench.step.gradients import Gradients, Layer


@dataclass(frozen=True)
class DelegatingClip(Clip):
    """Delegates to `clip` what it does not override, except for query, memory and schedule, which
    are its own."""

    clip: Clip

    @property
    def sensitivity(self) -> Sensitivity:
        return self.clip.sensitivity

    @property
    def by_group(self) -> bool:  # type: ignore[override]
        return self.clip.by_group

    @property
    def group_shares(self) -> Tensor | None:  # type: ignore[override]
        return self.clip.group_shares

    def bind(self, problem: Problem) -> Self:
        return replace(self, clip=self.clip.bind(problem))

    def norms(self, gradients: Gradients) -> Tensor:
        return self.clip.norms(gradients)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return self.clip.factors(norms, groups)

    def reduce(self, gradients: Gradients, factors: Tensor) -> Tensor:
        return self.clip.reduce(gradients, factors)

    def finish(self, total: Tensor) -> Tensor:
        return self.clip.finish(total)

    def widths(self, layers: Sequence[Layer], total: Tensor) -> Tensor | None:
        return self.clip.widths(layers, total)
