"""Federated SGD: each user sends one clipped, weighted gradient; the guarantee is per user."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.learning.data.derive.users import Units
from dpbench.learning.data.examples import Batch
from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Bounds, Clip, ClipName, Problem, make_clip
from dpbench.step.gradients import DelegatingGradients, Engine, Gradients
from dpbench.step.mechanism import (
    Gradient,
    Method,
    PerExample,
    ReleasedState,
    Update,
    as_published,
    checked,
)
from dpbench.step.mechanism.streams import permutation, seeded
from dpbench.system.errors import UserError
from dpbench.system.validate import Count, Positive

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


@checked
def dp_fedsgd(
    bound: Bounds,
    cap: Positive | None,
    clip: ClipName = "abadi",
    style: str = "flat",
    variant: str = "corrected",
    local_batch_size: Count | None = None,
) -> Method:
    """The gradient of each user's mean loss (McMahan et al. 2018; Bu et al. 2023, Algorithm 4).

    cap: users are weighted by min(examples/cap, 1); None for equal weights. bound, clip and style
    as for `dpsgd`. variant: as published, users are weighted by their number of examples, without a
    cap. local_batch_size: B of Algorithm 4, see `LocalBatch`; None for all of a user's examples.
    """
    gradient: Gradient = PerExample()
    if local_batch_size is not None:
        gradient = LocalBatch(local_batch_size)
    return federated_method("dp_fedsgd", gradient, cap, make_clip(clip, style, bound), variant)


@dataclass(frozen=True)
class LocalBatch(Gradient):
    """The gradient of each user's mean loss over a local batch, drawn afresh in every step.

    A user's gradient is clipped to R whatever the draw, so the account is that of full local data;
    the draws do not amplify user-level privacy. As they follow from a user's number, and one user
    less may renumber others, they have to be secret.
    """

    size: int

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        return engine(
            local_batches(batch.as_users(), self.size, released.seed, released.steps_done)
        )


def federated_method(
    name: str, gradient: Gradient, cap: float | None, clip: Clip, variant: str
) -> Method:
    """A user-level method: the optimiser gets sum_k w_k C_k g_k/(q W) of the users' clipped
    gradients, plus noise of scale sigma R/(q W), W = sum_k w_k over all users."""
    published = as_published(variant)
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

    def of(self, units: Units) -> Tensor:
        """The weights of all users."""
        return self(torch.tensor(units.sizes, dtype=torch.float64))

    def largest(self, units: Units) -> float:
        """The largest weight of a user, where that may be above 1."""
        return self.of(units).max().item() if self.published else 1.0


@dataclass(frozen=True)
class UserWeighting(Gradient):
    """The gradients of another gradient, weighted by user after clipping.

    largest: the weight that no user's exceeds.
    """

    gradient: Gradient
    weights: Weights
    largest: float = 1.0

    def bind(self, problem: Problem) -> Self:
        largest = self.weights.largest(problem.units)
        return replace(self, gradient=self.gradient.bind(problem), largest=largest)

    def advance(self, theta: Tensor, counts: Tensor | None) -> Self:
        return replace(self, gradient=self.gradient.advance(theta, counts))

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        gradients = self.gradient(engine, batch, clip, released)
        if self.weights == Weights(None):
            return gradients
        weights = self.weights(batch.sizes.to(gradients.losses))
        # Where the size of the training set is random, a user may have more examples than planned.
        return WeightedGradients(gradients, weights.clamp(max=self.largest))


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

    def bind(self, problem: Problem) -> Self:
        mean = self.weights.of(problem.units).mean().item()
        return replace(self, mean=mean, excess=self.weights.largest(problem.units))


def local_batches(users: Batch, size: int, seed: int, step: int) -> Batch:
    """The users, each with a uniform subset of `size` of their examples, without replacement.

    A user with at most `size` examples keeps all. Draws are independent across users and steps, and
    depend only on seed, step and user: not on other users, and a resumed run repeats them.
    Whoever knows them knows more than an epsilon says (see `LocalBatch`).
    """
    assert users.present is not None
    if users.present.shape[1] <= size:
        return users
    assert users.users is not None
    subsets = [
        _subset(row.nonzero().flatten(), user, size, seed, step)
        for row, user in zip(users.present.cpu(), users.users.tolist(), strict=True)
    ]
    return _select(users, subsets, size)


def _subset(indices: Tensor, user: int, size: int, seed: int, step: int) -> Tensor:
    """At most `size` of the indices [n], in their order."""
    if len(indices) <= size:
        return indices
    stream = seeded("local batches", seed, f"{step}/{user}", torch.device("cpu"))
    return indices[permutation(stream, len(indices))[:size].sort()[0]]


def _select(users: Batch, subsets: list[Tensor], size: int) -> Batch:
    """The users with only the examples at these indices, in rows padded to `size`."""
    columns = torch.zeros(len(subsets), size, dtype=torch.int64)
    present = torch.zeros(len(subsets), size, dtype=torch.bool)
    for row, mask, subset in zip(columns, present, subsets, strict=True):
        row[: len(subset)], mask[: len(subset)] = subset, True
    device = users.targets.device
    cells = torch.arange(len(subsets), device=device).unsqueeze(1), columns.to(device)
    inputs, targets = users.inputs[cells], users.targets[cells]
    return Batch(inputs, targets, users.groups, present.to(device), users.users)
