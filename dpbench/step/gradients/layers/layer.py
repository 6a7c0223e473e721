"""One call of a module, and the operations on its per-example gradients.

A module that computed outputs from inputs a, and whose outputs received the gradient b, has
per-example parameter gradients that depend on a and b alone. Index letters: b example, k view
(augmented copy), t position (sequence or pixel), i input, o output.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from dpbench.step.gradients.engine import Weights, column_blocks
from dpbench.step.gradients.norms import Term, evaluated
from dpbench.step.gradients.products import FLOAT32_PRODUCTS, Products


class ModuleCall(NamedTuple):
    """One call of a module: inputs a, output gradients b, of B examples with K views each.

    Rows are ordered example first, view second: a [B K, ...], b [B K, ...]. b is the gradient of
    the mean over an example's views, so that sums over views are gradients of examples. values()
    returns the parameters that the module computed with, by their names in the module; with a
    `perturbation`, the trainable ones have a leading axis of examples [B, ...]. products: those
    that a and b are operands of.
    """

    module: Any
    a: Tensor
    b: Tensor
    views: int
    values: Callable[[], dict[str, Tensor]]
    perturbation: "Perturbation | None" = None
    products: Products = FLOAT32_PRODUCTS

    @property
    def examples(self) -> int:
        return len(self.b) // self.views

    def over_views(self, rows: Tensor) -> Tensor:
        """[B, d] from [B K, d]."""
        return rows if self.views == 1 else rows.unflatten(0, (-1, self.views)).sum(1)


class LayerGradient(Protocol):
    """The per-example gradients of one module's parameters, d numbers each."""

    @property
    def small(self) -> Tensor | None:
        """The materialised gradients [B, k] of the last k parameters: of biases, or of all."""
        return None

    def squared_norm(self) -> Term:
        """Upper bounds on the squared norms of the terms of `write_sum` [B], in float64 (see
        `dpbench.gradients.norms`)."""

    def write_sum(self, weights: Weights, out: Tensor) -> tuple[Tensor, Tensor] | None:
        """Write sum_i weights_i g_i to out [d - k], without `small`; or return a view of out and
        the sum that is to be copied to it."""

    def dot(self, vector: Tensor) -> Tensor:
        """<g_i, vector> [B] for a vector [d]."""

    def rounding(self) -> Tensor:
        """How far the terms of `write_sum` may be from the exact gradients [B], in float64; here,
        for gradients without sums that could cancel."""
        return 1e-6 * evaluated([self.squared_norm()])[0].sqrt()

    def double(self) -> "LayerGradient":
        """The same gradients, for exact inner products in float64."""

    def stack(self) -> Tensor:
        """All g_i, materialised [B, d]."""

    def blocks(self) -> Iterator[Tensor]:
        """The columns of `stack` from left to right, a few at a time."""
        return column_blocks(self.stack())


class Perturbation(NamedTuple):
    """The parameters theta + scales_i g_i of one module for each example i; scales [B].

    views: rows of each example. shared: the values at theta. gradients: the g_i of its layers
    there.
    """

    module: Any
    views: int
    shared: Callable[[], dict[str, Tensor]]
    gradients: Sequence[Any]
    scales: Tensor

    def values(self) -> dict[str, Tensor]:
        """The parameters by their names in the module, materialised [B, ...]."""
        rows = torch.cat([gradient.stack() for gradient in self.gradients], 1)
        rows = rows * self.scales.unsqueeze(1)
        values, start = self.shared(), 0
        perturbed = dict(values)
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                change = rows[:, start : start + parameter.numel()]
                perturbed[name] = values[name] + change.view(-1, *parameter.shape)
                start += parameter.numel()
        return perturbed
