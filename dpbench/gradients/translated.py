"""Per-example gradients translated by one common vector."""

import torch
from torch import Tensor

from dpbench.gradients.delegating import DelegatingGradients
from dpbench.gradients.engine import Gradients
from dpbench.gradients.parameters import Layer


class TranslatedGradients(DelegatingGradients):
    """g_i + v for one vector v [D], without materialising the gradients.

    Squared norms are |g_i|^2 + 2 <g_i, v> + |v|^2, per layer with the layer's part of v. They are
    inaccurate where v nearly cancels g_i, so no guarantee may rely on them.
    """

    def __init__(self, gradients: Gradients, vector: Tensor, layers: tuple[Layer, ...]):
        super().__init__(gradients)
        self._vector, self._layers = vector, layers

    @property
    def norms(self) -> Tensor:
        return self._translated(self.base.norms, self._vector)

    @property
    def layer_norms(self) -> Tensor:
        columns = self.base.layer_norms.unbind(1)
        parts = (layer.part_of(self._vector) for layer in self._layers)
        pairs = zip(columns, parts, strict=True)
        return torch.stack([self._translated(*pair) for pair in pairs], 1)

    def _translated(self, norms: Tensor, vector: Tensor) -> Tensor:
        """The norms after adding a vector, from the norms before."""
        squared = norms.square() + 2 * self.base.dot(vector) + vector @ vector
        return squared.clamp(min=0).sqrt()

    def weighted_sum(self, factors: Tensor) -> Tensor:
        total = self.base.weighted_sum(factors)
        if factors.dim() == 1:
            return total + factors.sum() * self._vector
        pairs = zip(factors.sum(0), self._layers, strict=True)
        return total + torch.cat([share * self._vector[layer.at] for share, layer in pairs])

    def dot(self, vector: Tensor) -> Tensor:
        return self.base.dot(vector) + self._vector @ vector

    def stack(self) -> Tensor:
        return self.base.stack() + self._vector
