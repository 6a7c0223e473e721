"""The base class of clips that change some operations of another clip."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from dpbench.clipping.clip import Bound, Clip
from dpbench.gradients import Gradients, Layer


@dataclass(frozen=True)
class DelegatingClip(Clip):
    """Delegates to `clip` what it does not override, except for query, memory and schedule, which
    are its own."""

    clip: Clip

    @property
    def caveat(self) -> str | None:  # type: ignore[override]
        return self.clip.caveat

    @property
    def composition(self) -> str | None:  # type: ignore[override]
        return self.clip.composition

    @property
    def excess(self) -> float:  # type: ignore[override]
        return self.clip.excess

    @property
    def parts(self) -> int:  # type: ignore[override]
        return self.clip.parts

    @property
    def sensitivity(self) -> Bound:
        return self.clip.sensitivity

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

    def for_groups(self, groups: int) -> Self:
        return replace(self, clip=self.clip.for_groups(groups))

    def for_classes(self, classes: int) -> Self:
        return replace(self, clip=self.clip.for_classes(classes))

    def for_size(self, size: int) -> Self:
        return replace(self, clip=self.clip.for_size(size))

    def for_layers(self, names: Sequence[str]) -> Self:
        return replace(self, clip=self.clip.for_layers(names))
