"""A bound that tracks a quantile of the gradient norms by noisy counts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dpbench.clipping.clip import LARGEST_BOUND, LEAST_BOUND, Bound, CountQuery, Weighted
from dpbench.clipping.functions import ByNorm
from dpbench.clipping.layerwise import Layerwise
from dpbench.errors import UserError
from dpbench.gradients import Gradients
from dpbench.validate import fraction, positive


@dataclass(frozen=True)
class Quantile(Weighted):
    """R <- R exp(-eta (b - gamma)), b the noisy fraction of norms up to R (Andrew et al. 2021).

    The count sums +1 for each norm up to R and -1 for each above, twice that of their Section 2.1,
    so that one example moves it by 1 and the real batch size hardly matters: b = (count/B + 1)/2
    with the public expected batch size B. Layerwise, each layer has its own R and count; the counts
    are divided by sqrt(L), so that their joint L2 sensitivity is 1.

    gamma is `quantile`, eta `learning_rate`. The new R applies from the next batch on.
    """

    clip: ByNorm | Layerwise
    quantile: float
    learning_rate: float
    query: CountQuery

    def __post_init__(self) -> None:
        positive("the learning rate of the bound", self.learning_rate)
        fraction("the clipping quantile", self.quantile, zero=True, one=True)

    @property
    def composition(self) -> str | None:  # type: ignore[override]
        return self.clip.composition

    @property
    def sensitivity(self) -> Bound:
        return self.clip.sensitivity

    def norms(self, gradients: Gradients) -> Tensor:
        return self.clip.norms(gradients)

    def factors(self, norms: Tensor, groups: Tensor) -> Tensor:
        return self.clip.factors(norms, groups)

    def counts(self, norms: Tensor, groups: Tensor) -> Tensor:
        signs = torch.where(norms <= self.clip.bounds_of(norms), 1.0, -1.0)
        total = signs.sum(0, dtype=torch.float64).view(-1)
        return total / len(total) ** 0.5

    def updated(self, counts: Tensor, expected_batch_size: float) -> "Quantile":
        below = (counts * len(counts) ** 0.5 / expected_batch_size + 1) / 2
        growth = torch.exp(self.learning_rate * (self.quantile - below))
        # R is a released number, so clamping it to the valid range is post-processing.
        bounds = (self.clip.bounds_of(growth) * growth).clamp(LEAST_BOUND, LARGEST_BOUND)
        return replace(self, clip=self.clip.at(bounds.squeeze()))

    def scaled(self, by: float) -> "Quantile":
        raise UserError("a bound that tracks a quantile has no schedule; leave schedule.bound 1.")

    @property
    def parts(self) -> int:  # type: ignore[override]
        return self.clip.parts

    def for_layers(self, names: Sequence[str]) -> "Quantile":
        return replace(self, clip=self.clip.for_layers(names))
