"""Per-example gradients as the ghost engine has them: factored, module by module."""

from collections.abc import Iterator

import torch
from torch import Tensor

from dpbench.step.gradients.engine import Gradients, excluded, may_be_nonfinite
from dpbench.step.gradients.modules import ModuleGradients, TrackedModule
from dpbench.step.gradients.parameters import Parameters


class FactoredGradients(Gradients):
    """Per-example gradients by book-keeping: losses [B], and factored gradients by module.

    All tensors are detached from the autograd graph.
    """

    def __init__(
        self,
        losses: Tensor,
        by_module: dict[TrackedModule, ModuleGradients],
        parameters: Parameters,
    ):
        self.losses, self.by_module = losses, by_module
        self._squares: list[Tensor] | None = None
        self._norms: Tensor | None = None
        self._by_layer = [g for module in by_module.values() for g in module.gradients]
        self._parameters, self._layers = parameters, parameters.layers

    # Not by cached_property, which takes a lock before Python 3.12.

    @property
    def _squared(self) -> list[Tensor]:
        if self._squares is None:
            self._squares = [gradient.squared_norms() for gradient in self._by_layer]
        return self._squares

    @property
    def norms(self) -> Tensor:
        if self._norms is None:
            first, *others = self._squared
            total = torch.stack(self._squared).sum(0) if others else first
            self._norms = total.sqrt().to(self.losses)
        return self._norms

    @property
    def layer_norms(self) -> Tensor:
        return torch.stack(self._squared, 1).sqrt().to(self.losses)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        gradients = self._by_layer
        if may_be_nonfinite(self.norms):
            without = excluded(factors)
            gradients = [gradient.excluding(without) for gradient in gradients]
        columns = factors.unbind(1) if factors.dim() == 2 else [factors] * len(gradients)
        total = factors.new_empty(self._layers[-1].at.stop)
        # A view takes as long as the sum of a small layer.
        parts = [total[layer.at] for layer in self._layers] if len(gradients) > 1 else [total]
        for gradient, column, part in zip(gradients, columns, parts, strict=True):
            gradient.write_sum(column, part)
        return total

    def dot(self, vector: Tensor) -> Tensor:
        pairs = zip(self._by_layer, self._layers, strict=True)
        return torch.stack([gradient.dot(vector[layer.at]) for gradient, layer in pairs]).sum(0)

    @property
    def rounding(self) -> Tensor:
        return torch.stack([gradient.rounding() for gradient in self._by_layer], 1)

    def double(self) -> "FactoredGradients":
        by_module = {
            tracked: part._replace(gradients=[gradient.double() for gradient in part.gradients])
            for tracked, part in self.by_module.items()
        }
        return FactoredGradients(self.losses, by_module, self._parameters)

    def stack(self) -> Tensor:
        return torch.cat([gradient.stack() for gradient in self._by_layer], 1)

    def blocks(self) -> Iterator[Tensor]:
        for gradient in self._by_layer:
            yield from gradient.blocks()
