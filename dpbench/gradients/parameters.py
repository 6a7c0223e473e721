"""The trainable parameters of a model as one vector."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Layer:
    """The parameters of one module: its name, and where they lie in theta."""

    name: str
    at: slice


class Parameters:
    """The trainable parameters of a model, laid out in one vector theta [D].

    The model's own parameters become views of theta, so that updating theta updates the model.
    A layer is a module: its weight and bias together. Frozen parameters are excluded.
    """

    def __init__(self, model: nn.Module):
        self.named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        flat = torch.cat([p.detach().reshape(-1) for p in self.named.values()])
        self.theta = nn.Parameter(flat)
        self.places: dict[str, slice] = {}
        start = 0
        for name, parameter in self.named.items():
            place = slice(start, start + parameter.numel())
            parameter.data = self.theta.data[place].view_as(parameter)
            self.places[name] = place
            start = place.stop

    def __len__(self) -> int:
        return self.theta.numel()

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Layers in the order of theta; together they cover it without gaps."""
        found: dict[str, slice] = {}
        for name, place in self.places.items():
            module = name.rpartition(".")[0]
            found[module] = slice(found.get(module, place).start, place.stop)
        return tuple(Layer(name, at) for name, at in found.items())

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector [D], or [B, D], as tensors named and shaped like the parameters."""
        rows = vector.shape[:-1]
        return {
            n: vector[..., at].reshape((*rows, *self.named[n].shape))
            for n, at in self.places.items()
        }

    def flatten(self, tensors: dict[str, Tensor], batched: bool = False) -> Tensor:
        """The inverse of `unflatten`: [D], or [B, D] from tensors with a leading batch axis."""
        rows = next(iter(tensors.values())).shape[:1] if batched else ()
        return torch.cat([tensors[n].reshape(*rows, -1) for n in self.places], dim=-1)

    def gradient(self, value: Tensor, differentiable: bool = False) -> Tensor:
        """The gradient [D] of a scalar output; zero for parameters that it does not depend on."""
        gradients = torch.autograd.grad(
            value,
            list(self.named.values()),
            create_graph=differentiable,
            retain_graph=True,
            materialize_grads=True,
        )
        return self.flatten(dict(zip(self.named, gradients, strict=True)))
