"""The trainable parameters of a model as one vector."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn


@contextmanager
def at(point: Tensor, theta: Tensor) -> Iterator[None]:
    """The context in which theta [D], and so the model, is at another point [D]; it goes back to
    its own values, to the bit."""
    own = theta.data.clone()
    try:
        theta.data.copy_(point)
        yield
    finally:
        theta.data.copy_(own)


@dataclass(frozen=True)
class Layer:
    """The parameters of one module: its name, and where they lie in theta."""

    name: str
    at: slice

    def part_of(self, vector: Tensor) -> Tensor:
        """The vector [D] with zeros outside the layer."""
        part = torch.zeros_like(vector)
        part[self.at] = vector[self.at]
        return part


class Layout:
    """Where the trainable parameters of a model, `named`, lie in one vector theta [D], by `places`;
    ValueError if there are none."""

    def __init__(self, model: nn.Module):
        self.named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.places: dict[str, slice] = {}
        self._size = 0
        for name, parameter in self.named.items():
            start, self._size = self._size, self._size + parameter.numel()
            self.places[name] = slice(start, self._size)
        if not self.named:
            raise ValueError("the model has no trainable parameters")

    def __len__(self) -> int:
        return self._size

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Layers, each a module with weight and bias, in the order of theta, which they cover."""
        found: dict[str, slice] = {}
        for name, place in self.places.items():
            module = name.rpartition(".")[0]
            found[module] = slice(found.get(module, place).start, place.stop)
        return tuple(Layer(name, at) for name, at in found.items())


class Parameters(Layout):
    """The trainable parameters of a model in one vector theta [D], of which the model has views."""

    def __init__(self, model: nn.Module):
        super().__init__(model)
        self.theta = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in self.named.values()]))
        for name, parameter in self.named.items():
            parameter.data = self.theta.data[self.places[name]].view_as(parameter)

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
