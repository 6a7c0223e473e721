"""GeoClip: clips, and adds noise, in coordinates that fit the gradients released so far."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import torch
from msgspec import Meta
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Abadi, Clip
from dpbench.step.gradients import Engine, Gradients, MaterialisedGradients
from dpbench.step.mechanism import Gradient, Method, ReleasedState, Update, checked
from dpbench.system.validate import Share

GUARANTEE = Guarantee(
    "proven",
    "Poisson-sampled Gaussian mechanism with a stated sensitivity; the coordinates that gradients "
    "are clipped in are made of earlier releases.",
)

LEAST = 1e-15
"""The least variance, over the largest: h1 of the paper."""

UNKNOWN = torch.zeros(0)
"""What a geometry has before the first step, where the parameters are not known yet."""


@checked
def geoclip(
    bound: float,
    rank: Annotated[int, Meta(ge=1, le=4096)],
    mean_decay: Share,
    covariance_decay: Share,
) -> Method:
    """DP-SGD in the coordinates W (g - a) of a `Geometry` (Gilani et al. 2025, Algorithm 1)."""
    geometry = Geometry(bound, rank, mean_decay, covariance_decay)
    return Method("geoclip", Abadi(bound), GUARANTEE, CoordinateChange(), update=geometry)


@dataclass(frozen=True)
class Geometry(Update):
    """Restores W^-1 (noisy mean) + a, and fits a and W = R M to what it restored.

    a is the average of the restored gradients, with exponential weights, `mean_decay` for the past.
    S is that of B (g - a)(g - a)^T, with `covariance_decay`, where B is the expected batch size; it
    starts as I R^2/D, and no variance counts for more than that, which is h2 of the paper. Then W
    is S^(-1/4), scaled so that tr(W S W^T) = R^2 while no variance is above R^2/D. So W starts as
    I, no coordinate shrinks, and the noise is never larger than that of DP-SGD with the bound R.

    rank: of S beside a multiple of I, which gets the mean of what a rank has no room for; with D it
    is exact. The other fields are a [D], and S D/R^2 as axes [D, K] with variances [K] beyond
    the scalar `rest`, and the last restored gradient [D].
    """

    bound: float
    rank: int
    mean_decay: float
    covariance_decay: float
    mean: Tensor = field(default=UNKNOWN, compare=False, repr=False)
    axes: Tensor = field(default=UNKNOWN, compare=False, repr=False)
    variances: Tensor = field(default=UNKNOWN, compare=False, repr=False)
    rest: Tensor = field(default=UNKNOWN, compare=False, repr=False)
    gradient: Tensor = field(default=UNKNOWN, compare=False, repr=False)

    def at(self, theta: Tensor) -> Self:
        """The geometry for parameters theta [D]: before the first step W is I, and a is 0."""
        if len(self.mean):
            return self
        mean, rank = torch.zeros_like(theta), min(self.rank, len(theta))
        axes, variances = mean.new_zeros(len(mean), rank), mean.new_zeros(rank)
        return replace(self, mean=mean, axes=axes, variances=variances, rest=mean.new_ones(()))

    def transformed(self, gradients: Tensor) -> Tensor:
        """W (g - a) for each gradient [B, D]."""
        return self._by_power(gradients - self.mean, -0.25)

    def _by_power(self, rows: Tensor, power: float) -> Tensor:
        """Rows [..., D] times the power of S D/R^2, and scaled: W for -1/4 and W^-1 for 1/4."""
        most, rest = ((x + self.rest).clamp(LEAST, 1) for x in (self.variances, 0))
        size, rank = self.axes.shape
        scale = ((most.sqrt().sum() + (size - rank) * rest.sqrt()) / size) ** (2 * power)
        most, rest = scale * most**power, scale * rest**power
        return rest * rows + (rows @ self.axes * (most - rest)) @ self.axes.T

    def advance(
        self, noisy: Tensor, deviation: float | Tensor, theta: Tensor, released: ReleasedState
    ) -> Self:
        if not len(self.mean):
            return self.at(theta).advance(noisy, deviation, theta, released)
        # a is added once, as if it had been subtracted from as many examples as expected: how many
        # there were is private. On average over batches it is right.
        change = self._by_power(noisy, 0.25)
        gradient = self.mean + change
        mean = self.mean.lerp(gradient, 1 - self.mean_decay)
        # The mean of a batch has the covariance of an example's gradient over the batch size, which
        # again must be the public one.
        unit = self.bound / (released.expected_batch_size * len(change)) ** 0.5
        return replace(self._fitted(change / unit), mean=mean, gradient=gradient)

    def _fitted(self, change: Tensor) -> Self:
        """With one more change [D], in units of R/sqrt(D), in S."""
        decay, rank = self.covariance_decay, len(self.variances)
        past = self.axes * (decay * self.variances).sqrt()
        columns = torch.cat([past, (1 - decay) ** 0.5 * change.unsqueeze(1)], 1)
        axes, lengths, _ = torch.linalg.svd(columns, full_matrices=False)
        variances = lengths.square()
        rest = decay * self.rest + variances[rank:].sum() / len(change)
        return replace(self, axes=axes[:, :rank], variances=variances[:rank], rest=rest)

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        return self.gradient.clone()


@dataclass(frozen=True)
class CoordinateChange(Gradient):
    """W (g - a) for each example's gradient g, materialised, so that any engine's norms are exact.

    W and a are those of the method's `Geometry`, which has seen earlier steps alone.
    """

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        assert isinstance(released.update, Geometry)
        gradients, theta = engine(batch), engine.parameters.theta.detach()
        rows = released.update.at(theta).transformed(gradients.stack().to(theta))
        return MaterialisedGradients(gradients.losses, rows, engine.parameters.layers)
