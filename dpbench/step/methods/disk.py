"""DiSK: a simplified Kalman filter of the released gradients."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Self

from msgspec import Meta
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Bounds, Clip, ClipName, make_clip
from dpbench.step.gradients import Engine, Gradients, MaterialisedGradients
from dpbench.step.mechanism import Gradient, Method, ReleasedState, Update, checked
from dpbench.system.validate import Positive

GUARANTEE = Guarantee(
    "proven",
    "Poisson-sampled Gaussian mechanism with a stated sensitivity, as each example's two gradients "
    "are clipped as one; the point they are taken at and the filter are made of earlier releases.",
)


@checked
def disk(
    bound: Bounds,
    kappa: Annotated[float, Meta(gt=0, le=1)],
    gamma: Positive | None,
    clip: ClipName,
    style: str,
) -> Method:
    """DP-SGD with a simplified Kalman filter (Zhang et al. 2025, DiSK).

    kappa: the weight of a new noisy mean in the filter. gamma: see `LookAhead`; None for
    (1 - kappa)/kappa, with which a step takes one gradient.
    """
    clipping, gradient = make_clip(clip, style, bound), LookAhead(kappa, gamma)
    return Method("disk", clipping, GUARANTEE, gradient, update=Kalman(kappa))


@dataclass(frozen=True)
class LookAhead(Gradient):
    """c grad L_i(theta + gamma d) + (1 - c) grad L_i(theta), with d the last change of theta and
    c = (1 - kappa)/(kappa gamma); the gradient at theta in the first step.

    Where both are needed, the gradients of a physical batch are materialised, and losses are those
    at theta. last: the parameters before the last step.
    """

    kappa: float
    gamma: float | None
    last: Tensor | None = field(default=None, compare=False)

    def advance(self, theta: Tensor, counts: Tensor | None) -> Self:
        return replace(self, last=theta.clone())

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        ratio = (1 - self.kappa) / self.kappa
        if self.last is None or ratio == 0:
            return engine(batch)
        gamma = ratio if self.gamma is None else self.gamma
        ahead = engine(batch, gamma * (engine.parameters.theta.detach() - self.last))
        if gamma == ratio:
            return ahead
        here, c = engine(batch), ratio / gamma
        combined = c * ahead.stack() + (1 - c) * here.stack()
        return MaterialisedGradients(here.losses, combined, engine.parameters.layers)


@dataclass(frozen=True)
class Kalman(Update):
    """g <- (1 - kappa) g + kappa (noisy mean); the first g is the first noisy mean."""

    kappa: float
    estimate: Tensor | None = field(default=None, compare=False)

    def advance(
        self, noisy: Tensor, deviation: float | Tensor, theta: Tensor, released: ReleasedState
    ) -> Self:
        estimate = noisy if self.estimate is None else self.estimate.lerp(noisy, self.kappa)
        return replace(self, estimate=estimate.clone())

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        assert self.estimate is not None
        return self.estimate.clone()
