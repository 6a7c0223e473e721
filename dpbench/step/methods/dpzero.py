"""DPZero: private training without a backward pass, along random directions."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Abadi, Clip
from dpbench.step.gradients import Engine, Gradients, Layer, at_least_float32
from dpbench.step.gradients.engine import empty
from dpbench.step.gradients.flatten import flatten
from dpbench.step.gradients.norms import squared_norms
from dpbench.step.gradients.parameters import at
from dpbench.step.mechanism import Gradient, Method, ReleasedState, Update, checked
from dpbench.system import seeds
from dpbench.system.seeds import torch_state_kept
from dpbench.system.validate import Positive

GUARANTEE = Guarantee(
    "proven",
    "Poisson-sampled Gaussian mechanism with a stated sensitivity; the direction of a step is "
    "drawn independently of the data, and what is made of the noisy sum is post-processing.",
)


@checked
def dpzero(bound: float, smoothing: Positive) -> Method:
    """theta <- theta - lr s u, with s the noisy mean of clipped differences of each example's loss
    (Zhang et al. 2024, DPZero).

    The difference is (L_i(theta + h u) - L_i(theta - h u))/(2 h), for h = smoothing and u uniform
    on the sphere of radius sqrt(D), drawn anew in each step. The gradient is the difference times
    v = u/sqrt(D), and s the part of the noisy sum along v, with the noise of one coordinate.
    """
    gradient, update = TwoPoints(smoothing), AlongDirection()
    return Method("dpzero", Abadi(bound), GUARANTEE, gradient, update=update)


@dataclass(frozen=True)
class TwoPoints(Gradient):
    """Each example's difference of losses times the unit vector of the step; its loss is the
    mean of both."""

    smoothing: float

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        parameters = engine.parameters
        if not len(batch):
            return empty(parameters)
        theta = parameters.theta.detach()
        v = direction(released.seed, released.steps_done, theta)
        shift = (self.smoothing * len(theta) ** 0.5) * v
        ahead, behind = losses_on_both_sides(engine, batch, shift)
        differences = (ahead.double() - behind.double()) / (2 * self.smoothing)
        losses = (ahead + behind) / 2
        return DirectionalGradients(losses, differences.to(theta), v, parameters.layers)


@dataclass(frozen=True)
class AlongDirection(Update):
    """The part of the noisy mean along the direction of the step, times sqrt(D)."""

    seed: int = 0
    step: int = 0

    def advance(
        self, noisy: Tensor, deviation: float | Tensor, theta: Tensor, released: ReleasedState
    ) -> Self:
        return replace(self, seed=released.seed, step=released.steps_done)

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        unit = direction(self.seed, self.step, theta)
        return unit.mul_((unit @ noisy) * len(theta) ** 0.5)


def direction(seed: int, step: int, theta: Tensor) -> Tensor:
    """The unit vector of a step [D]."""
    draw = seeds.generator(
        seeds.derived(seed, "directions") + step, "direction of a step", theta.device
    )
    vector = torch.randn(theta.shape, dtype=theta.dtype, device=theta.device, generator=draw)
    return vector / vector.norm()


class DirectionalGradients(Gradients):
    """g_i = d_i v for slopes d [B] and one direction v [D]; losses [B]."""

    def __init__(self, losses: Tensor, slopes: Tensor, v: Tensor, layers: tuple[Layer, ...]):
        self.losses, self._slopes, self._v, self._layers = losses, slopes, v, layers

    @property
    def norms(self) -> Tensor:
        return self._along(self._v)

    @property
    def layer_norms(self) -> Tensor:
        return torch.stack([self._along(layer.part_of(self._v)) for layer in self._layers], 1)

    def _along(self, v: Tensor) -> Tensor:
        length = squared_norms(v.unsqueeze(0)).sqrt()
        return (self._slopes.double().abs() * length).to(self._slopes)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        if factors.dim() == 1:
            return self._v * self._sum(factors)
        pairs = zip(self._layers, factors.unbind(1), strict=True)
        return torch.cat([layer.part_of(self._v) * self._sum(column) for layer, column in pairs])

    def _sum(self, factors: Tensor) -> Tensor:
        return (factors * self._slopes.masked_fill(factors == 0, 0)).sum()

    def dot(self, vector: Tensor) -> Tensor:
        return self._slopes * (self._v @ vector)

    def double(self) -> "DirectionalGradients":
        slopes, v = self._slopes.double(), self._v.double()
        return DirectionalGradients(self.losses, slopes, v, self._layers)

    def stack(self) -> Tensor:
        return self._slopes.unsqueeze(1) * self._v


def losses_on_both_sides(engine: Engine, batch: Batch, shift: Tensor) -> tuple[Tensor, Tensor]:
    """The losses at theta plus and minus a shift [D], each [B]: two forward passes, in which
    dropout draws the same."""
    with torch_state_kept(shift.device):
        ahead = _losses(engine, batch, shift)
    return ahead, _losses(engine, batch, -shift)


@torch.no_grad()
def _losses(engine: Engine, batch: Batch, shift: Tensor) -> Tensor:
    """The losses [B] at theta plus a shift [D], without a backward pass."""
    theta = engine.parameters.theta.detach()
    flat = flatten(batch, engine.views, theta)
    rows = engine.options.in_memory_format(flat.rows)

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        return engine.loss(at_least_float32(engine.model(inputs)), targets)

    with engine.options.precision.model(theta.device), at(theta + shift, theta):
        return flat.losses(engine.by_row(losses, rows.inputs, rows.targets))
