"""Linear layers: sums of outer products."""

import torch
from torch import Tensor

from dpbench.gradients.engine import without
from dpbench.gradients.layers.layer import LayerGradient, Seen, gram_squared_norms


class Outer:
    """g_i = sum_t b_it a_it^T, the gradient of every linear map: a [B, T, I], b [B, T, O].

    With one position the norm is a product of two norms (Goodfellow 2015); with several it comes
    from the Gram matrices of a and b over positions, or from the materialised gradient, whichever
    moves less (Bu et al. 2022, "Scalable and efficient training of large convolutional neural
    networks with differential privacy").
    """

    def __init__(self, a: Tensor, b: Tensor, bias: bool):
        self.a, self.b, self.bias = a, b, bias
        self._weight: Tensor | None = None

    def squared_norms(self) -> Tensor:
        total = self._weight_squared_norms()
        return total + self._bias_rows().square().sum(1) if self.bias else total

    def _weight_squared_norms(self) -> Tensor:
        _, t, i = self.a.shape
        o = self.b.shape[2]
        if t == 1:
            return self.a.square().sum((1, 2)) * self.b.square().sum((1, 2))
        if self._weight is None and t * (i + o) < i * o:
            return gram_squared_norms(self.a, self.b)
        return self._weight_rows().square().sum((1, 2))

    def _weight_rows(self) -> Tensor:
        if self._weight is None:
            self._weight = self.b.mT @ self.a  # [B, O, I]
        return self._weight

    def _bias_rows(self) -> Tensor:
        return self.b.squeeze(1) if self.b.shape[1] == 1 else self.b.sum(1)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        if self._weight is not None:
            weight = factors @ self._weight.flatten(1)
        else:
            scaled = (self.b * factors.view(-1, 1, 1)).flatten(0, 1)
            weight = (scaled.mT @ self.a.flatten(0, 1)).flatten()
        # The rows that the norm was taken of: positions that cancel must not do so otherwise here.
        return torch.cat([weight, factors @ self._bias_rows()]) if self.bias else weight

    def dot(self, vector: Tensor) -> Tensor:
        o, i = self.b.shape[2], self.a.shape[2]
        total = ((self.a @ vector[: o * i].view(o, i).T) * self.b).sum((1, 2))
        return total + self._bias_rows() @ vector[o * i :] if self.bias else total

    def stack(self) -> Tensor:
        weight = self._weight_rows().flatten(1)
        return torch.cat([weight, self._bias_rows()], 1) if self.bias else weight

    def cleaned(self, factors: Tensor) -> "Outer":
        return Outer(without(self.a, factors), without(self.b, factors), self.bias)


def linear(seen: Seen) -> LayerGradient:
    """A linear layer, its inputs with any number of axes between batch and features."""
    a, b = (x.reshape(seen.examples, -1, x.shape[-1]) for x in (seen.a, seen.b))
    return Outer(a, b, seen.module.bias is not None)
