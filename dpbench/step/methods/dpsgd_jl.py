"""DP-SGD with gradient norms estimated by random projections."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Bounds, Clip, ClipName, make_clip
from dpbench.step.gradients import DelegatingGradients, Engine, Gradients, Layer
from dpbench.step.mechanism import Gradient, Method, ReleasedState, as_published, checked
from dpbench.system import seeds
from dpbench.system.errors import UserError
from dpbench.system.validate import Fraction

Projections = Annotated[int, Meta(ge=2, le=100_000)]
"""At least two: a float32 draw is exactly 0 far more often than a normal variable is nearly 0, and
with one draw so would be the estimate, which no slack covers."""

SMALLEST_SQUARE = 1e-10
"""The least sum of squared draws that float32 has as often as the chi-squared law says, to a few
percent: draws below 1e-6 are too coarse, and one in ten million is exactly 0."""

ROUNDING = 1e-6
"""The relative error of a norm in float32."""

AS_PUBLISHED = Guarantee(
    "none",
    "As published: half of the estimated norms are below the true ones, so clipping by them does "
    "not bound what one example can do; divides by the batch's real size.",
)


@checked
def dpsgd_jl(
    bound: Bounds,
    projections: Projections,
    failure: Fraction,
    clip: ClipName,
    style: str,
    variant: str,
) -> Method:
    """DP-SGD with norms from JL projections (Bu et al. 2021; 2023, Algorithm 2).

    As published, the norm is estimated by M = sqrt(mean_j <g, u_j>^2) for random u_j. Corrected, by
    M sqrt(r/q), q the `failure`-quantile of chi-squared with r degrees of freedom: that is below
    the true norm only with probability `failure`, for each example, step and (layerwise) layer.
    """
    published = as_published(variant)
    gradient = ProjectedNorms(projections, 1.0 if published else slack(projections, failure))
    corrected = Guarantee(
        "proven",
        "Poisson-sampled Gaussian mechanism whose sensitivity holds but with probability "
        f"{failure:g} for each step and clipped norm, since norms are upper estimates from random "
        "projections; this is deducted from delta.",
    )
    return Method(
        "dpsgd_jl",
        make_clip(clip, style, bound),
        AS_PUBLISHED if published else corrected,
        gradient,
        variant=variant,
        by_real_size=published,
        failure=0.0 if published else failure,
    )


def slack(projections: int, failure: float) -> float:
    """The factor that makes an estimate from r projections an upper bound, up to a probability of
    `failure`: r M^2/|g|^2 is chi-squared with r degrees of freedom. Raises UserError for too
    few projections."""
    from scipy import stats

    quantile = stats.chi2.ppf(failure, projections)
    if quantile < SMALLEST_SQUARE:
        raise UserError(
            f"method.failure={failure:g} is rarer than {projections} projections in float32 can "
            "be: choose more projections, or a larger method.failure."
        )
    return float((projections / quantile) ** 0.5)


@dataclass(frozen=True)
class ProjectedNorms(Gradient):
    """The gradient: per-example gradients with estimated norms."""

    projections: int
    slack: float

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        theta = engine.parameters.theta.detach()
        seed = seeds.derived(released.seed, "projections") + released.steps_done
        draw = seeds.generator(seed, "projections of a step", theta.device)
        vectors = [
            torch.randn(theta.shape, dtype=theta.dtype, device=theta.device, generator=draw)
            for _ in range(self.projections)
        ]
        return EstimatedNorms(engine(batch), vectors, self.slack, engine.parameters.layers)


class EstimatedNorms(DelegatingGradients):
    """Gradients whose norms are estimated as slack sqrt(mean_j <g_i, u_j>^2), u_j [D].

    The inner products are those of exact gradients, in float64; what the rounding of the clipped
    sum may add is added, as positions that cancel leave nothing else.
    """

    def __init__(
        self, gradients: Gradients, vectors: list[Tensor], slack: float, layers: tuple[Layer, ...]
    ):
        super().__init__(gradients)
        self._vectors, self._slack, self._layers = vectors, slack, layers

    @property
    def norms(self) -> Tensor:
        return self._estimate(self._vectors, self.base.rounding.sum(1))

    @property
    def layer_norms(self) -> Tensor:
        parts = ([layer.part_of(vector) for vector in self._vectors] for layer in self._layers)
        pairs = zip(parts, self.base.rounding.unbind(1), strict=True)
        return torch.stack([self._estimate(*pair) for pair in pairs], 1)

    @cached_property
    def _exact(self) -> Gradients:
        return self.base.double()

    def _estimate(self, vectors: list[Tensor], rounding: Tensor) -> Tensor:
        dots = torch.stack([self._exact.dot(vector.double()) for vector in vectors])
        norms = dots.square().mean(0).sqrt() * self._slack + rounding
        return (norms * (1 + ROUNDING)).to(self.losses)
