"""Gradients along one direction, from losses alone."""

import torch
from torch import Tensor
from torch.func import functional_call

from dpbench.data.dataset import Batch
from dpbench.gradients.engine import Engine, Gradients
from dpbench.gradients.flatten import flatten
from dpbench.gradients.norms import squared_norms
from dpbench.gradients.parameters import Layer
from dpbench.gradients.precision import at_least_float32
from dpbench.system.seeds import torch_state_kept


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

    @property
    def rounding(self) -> Tensor:
        return 1e-6 * self.layer_norms.double()

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
    values = engine.parameters.unflatten(theta + shift)
    with engine.options.precision.model(theta.device):
        outputs = functional_call(engine.model, values, (rows.inputs,))
        return flat.losses(engine.loss(at_least_float32(outputs), rows.targets))
