"""Linear layers: outer products, and their sums over positions."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from dpbench.step.gradients.engine import Weights, column_blocks, per_block
from dpbench.step.gradients.layers.layer import LayerGradient, ModuleCall, Perturbation
from dpbench.step.gradients.norms import Dyads, Sum, Term, evaluated, of_rows
from dpbench.step.gradients.position_norms import OuterNorms, gram, size_of_outer
from dpbench.step.gradients.products import FLOAT32_PRODUCTS, Products


class Dyad(LayerGradient):
    """g_i = b_i a_i^T, for a linear map with one position: a [B, I], b [B, O].

    The norm is a product of two norms (Goodfellow 2015), and the sum is one matrix product.
    """

    def __init__(self, a: Tensor, b: Tensor, bias: bool, products: Products = FLOAT32_PRODUCTS):
        self.a, self.b, self.bias, self.products = a, b, bias, products

    def squared_norm(self) -> Term:
        return Dyads(self.a, self.b, self.bias)

    def write_sum(self, weights: Weights, out: Tensor) -> None:
        # Cut towards 0, it gets no longer.
        scaled = self.products.operand(weights.scaled(self.b))
        o, i = self.b.shape[1], self.a.shape[1]
        weight, bias = out.split((o * i, o)) if self.bias else (out, None)
        with self.products.taken(self.a):
            torch.mm(scaled.T, weights.zeroed(self.a), out=weight.view(o, i))
        if self.bias:
            torch.sum(scaled, 0, out=bias)

    def dot(self, vector: Tensor) -> Tensor:
        o, i = self.b.shape[1], self.a.shape[1]
        total = ((self.a @ vector[: o * i].view(o, i).T) * self.b).sum(1)
        return total + self.b @ vector[o * i :] if self.bias else total

    def rounding(self) -> Tensor:
        return (1e-6 + self.products.cut) * evaluated([self.squared_norm()])[0].sqrt()

    def double(self) -> "Dyad":
        return Dyad(self.a.double(), self.b.double(), self.bias)

    def apply(self, x: Tensor, scales: Tensor) -> Tensor:
        """scales_i (G_i x_i + h_i) [B, O] for x [B, I], with G and h of weight and bias."""
        along = (x * self.a).sum(1)
        return self.b * ((along + 1 if self.bias else along) * scales).unsqueeze(1)

    def stack(self) -> Tensor:
        weight = (self.b.unsqueeze(2) * self.a.unsqueeze(1)).flatten(1)
        return torch.cat([weight, self.b], 1) if self.bias else weight

    def blocks(self) -> Iterator[Tensor]:
        width = self.a.shape[1]
        outputs = per_block(len(self.a) * width, self.a.device)
        for b in self.b.split(outputs, 1):
            yield (b.unsqueeze(2) * self.a.unsqueeze(1)).flatten(1)
        if self.bias:
            yield self.b


class Outer(LayerGradient):
    """g_i = sum_t b_it a_it^T, for a linear map with several positions: a [B, T, I], b [B, T, O].

    The norm comes from the Gram matrices of a and b over positions, or from the materialised
    gradient, whichever moves less memory (Bu et al. 2022). bias [B, O]: the sum of b over
    positions, which norm and sum share so that cancelling positions round alike.
    """

    def __init__(
        self, a: Tensor, b: Tensor, bias: Tensor | None, products: Products = FLOAT32_PRODUCTS
    ):
        self.a, self.b, self.bias, self.products = a, b, bias, products
        self._weight: Tensor | None = None

    @property
    def small(self) -> Tensor | None:
        return self.bias

    def squared_norm(self) -> Term:
        if self._gram:
            a, b = gram(self.a, self.products), gram(self.b, self.products)
            weight: Term = OuterNorms(a, b, self.products)
        else:
            weight = of_rows(self._weight_rows())
        return weight if self.bias is None else Sum(weight, of_rows(self.bias))

    @property
    def _gram(self) -> bool:
        """Whether Gram matrices over positions move less memory than the gradient itself."""
        t, i = self.a.shape[1:]
        o = self.b.shape[2]
        return self._weight is None and t * (i + o) < i * o

    def _weight_rows(self) -> Tensor:
        if self._weight is None:
            with self.products.taken(self.a):
                self._weight = torch.bmm(self.b.mT, self.a)  # [B, O, I]
        return self._weight

    def write_sum(self, weights: Weights, out: Tensor) -> None:
        if self._weight is not None:
            torch.mv(weights.zeroed(self._weight).flatten(1).T, weights.factors, out=out)
        else:
            scaled = self.products.operand(weights.scaled(self.b)).flatten(0, 1)
            weight = out.view(self.b.shape[2], self.a.shape[2])
            with self.products.taken(self.a):
                torch.mm(scaled.T, weights.zeroed(self.a).flatten(0, 1), out=weight)

    def dot(self, vector: Tensor) -> Tensor:
        o, i = self.b.shape[2], self.a.shape[2]
        total = ((self.a @ vector[: o * i].view(o, i).T) * self.b).sum((1, 2))
        return total if self.bias is None else total + self.bias @ vector[o * i :]

    def rounding(self) -> Tensor:
        relative = self.products.rounding_of_sum(self.a.shape[1], self.a)
        return relative * size_of_outer(self.a, self.b)

    def double(self) -> "Outer":
        bias = None if self.bias is None else self.bias.double()
        return Outer(self.a.double(), self.b.double(), bias)

    def apply(self, x: Tensor, scales: Tensor) -> Tensor:
        """scales_i (x_i G_i^T + h_i) [B, T, O] for x [B, T, I], with G and h of weight and bias."""
        out = x @ self.a.mT @ self.b if self._gram else x @ self._weight_rows().mT
        if self.bias is not None:
            out = out + self.bias.unsqueeze(1)
        return out * scales.view(-1, 1, 1)

    def stack(self) -> Tensor:
        weight = self._weight_rows().flatten(1)
        return weight if self.bias is None else torch.cat([weight, self.bias], 1)

    def blocks(self) -> Iterator[Tensor]:
        yield from column_blocks(self._weight_rows().flatten(1))
        if self.bias is not None:
            yield self.bias


def linear(call: ModuleCall) -> list[Dyad | Outer]:
    """A linear layer, whose inputs may have any number of axes between batch and features."""
    bias = call.module.bias is not None
    if call.views == 1 and call.a.dim() == 2:
        return [Dyad(call.a, call.b, bias, call.products)]
    a, b = (_positions(x, call.views) for x in (call.a, call.b))
    return [Outer(a, b, b.sum(1) if bias else None, call.products)]


def perturbed_linear(perturbation: Perturbation, x: Tensor) -> Tensor:
    """A linear layer's outputs for x, with W_i = W + scales_i G_i for each example, by
    (W + s b a^T) x = W x + s b <a, x> if a gradient has few positions."""
    (gradient,), values = perturbation.gradients, perturbation.shared()
    plain = F.linear(x, values["weight"], values.get("bias"))
    rows = x if isinstance(gradient, Dyad) else _positions(x, perturbation.views)
    return plain + gradient.apply(rows, perturbation.scales).view_as(plain)


def _positions(x: Tensor, views: int) -> Tensor:
    """[B, T, features] from [B K, ..., features]."""
    if x.dim() == 3 and views == 1:
        return x
    return x.reshape(len(x) // views, -1, x.shape[-1])
