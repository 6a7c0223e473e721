"""User-level methods: the weighted mean of the users' clipped contributions."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.clipping import Clip
from dpbench.data.dataset import Batch
from dpbench.data.derive.users import Units
from dpbench.gradients import Engine, Gradients
from dpbench.gradients.delegating import DelegatingGradients
from dpbench.mechanism.method import Gradient, Method, ReleasedState, as_published
from dpbench.mechanism.update import Update
from dpbench.privacy.guarantee import Guarantee
from dpbench.system.errors import UserError
from dpbench.system.validate import positive

GUARANTEE = Guarantee(
    "proven",
    "Poisson-sampled users and a Gaussian mechanism with a stated sensitivity, as no weight is "
    "above 1; how many users there are and how many examples each has is taken as public.",
)
AS_PUBLISHED = Guarantee(
    "proven",
    "As published: the noise is scaled by R though a user counts by its number of examples, so the "
    "account has the noise multiplier over the largest number; how many users there are and how "
    "many examples each has is taken as public.",
)


def federated_method(
    name: str, gradient: Gradient, cap: float | None, clip: Clip, variant: str
) -> Method:
    """A user-level method: a weighted sum of the users' clipped gradients.

    The optimiser gets sum_k w_k C_k g_k/(q W) plus noise of scale sigma R/(q W), W = sum_k w_k over
    all users.
    """
    published = as_published(variant)
    if cap is not None:
        positive("method.cap", cap)
    if published and cap is not None:
        raise UserError("Algorithm 4 as published has no cap: leave method.cap null.")
    weights = Weights(cap, published)
    return Method(
        name,
        clip,
        AS_PUBLISHED if published else GUARANTEE,
        UserWeighting(gradient, weights),
        update=WeightedMean(weights),
        variant=variant,
        users_only=True,
    )


@dataclass(frozen=True)
class Weights:
    """A user's weight: 1, min(examples/cap, 1) (McMahan et al. 2018, Algorithm 1), or the number of
    examples, as published by Bu et al. 2023."""

    cap: float | None
    published: bool = False

    def __call__(self, sizes: Tensor) -> Tensor:
        if self.published:
            return sizes
        return torch.ones_like(sizes) if self.cap is None else (sizes / self.cap).clamp(max=1)


@dataclass(frozen=True)
class UserWeighting:
    """A gradient seam: the gradients of another, weighted by user after clipping."""

    gradient: Gradient
    weights: Weights

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        gradients = self.gradient(engine, batch, clip, released)
        if self.weights == Weights(None):
            return gradients
        weights = self.weights(batch.sizes.to(gradients.losses))
        # Where the size of the training set is random, a user may have more examples than planned.
        assert isinstance(released.update, WeightedMean)
        return WeightedGradients(gradients, weights.clamp(max=released.update.excess))


class WeightedGradients(DelegatingGradients):
    """Gradients that count with weights [B] in sums; their norms are unweighted."""

    def __init__(self, gradients: Gradients, weights: Tensor):
        super().__init__(gradients)
        self._weights = weights

    def weighted_sum(self, factors: Tensor) -> Tensor:
        weights = self._weights if factors.dim() == 1 else self._weights.unsqueeze(1)
        return self.base.weighted_sum(factors * weights)


@dataclass(frozen=True)
class WeightedMean(Update):
    """Completes the division by q W of a sum over the expected number of users.

    mean: the mean weight of all users. excess: the largest weight of a user, where the noise is
    scaled as if that were 1.
    """

    weights: Weights
    mean: float = 1.0
    excess: float = 1.0

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return noisy.div_(self.mean)

    def on(self, units: Units) -> Self:
        weights = self.weights(torch.tensor(units.sizes, dtype=torch.float64))
        largest = weights.max().item() if self.weights.published else 1.0
        return replace(self, mean=weights.mean().item(), excess=largest)
