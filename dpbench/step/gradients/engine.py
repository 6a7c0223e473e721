"""The interfaces of engines and of the per-example gradients that they compute."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from dpbench.learning.data.examples import Batch
from dpbench.step.gradients.kept import forgotten
from dpbench.step.gradients.norms import may_exceed, selected, squared_norms
from dpbench.step.gradients.options import ForwardOptions
from dpbench.step.gradients.parameters import Layer, Parameters

CPU_BLOCK, GPU_BLOCK = 2**18, 2**27
"""Numbers in a block of columns or examples: few enough to stay in a cache, or many enough to
occupy a GPU."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps outputs [B, ...] and targets [B, ...] to losses [B]; loss i depends on example i alone."""


class EngineFallback(UserWarning):
    """The ghost engine materialises gradients though it was asked for by name, or computes them one
    by one, which is slow."""


class Gradients(Protocol):
    """The gradients g_i [D] of the examples of one batch, not necessarily materialised.

    A non-finite gradient has a non-finite norm; a factor of 0 removes it from every sum.
    """

    losses: Tensor  # [B]

    counts: Tensor | None = None
    """The exact counts [Q] of a method that counts more than norms and groups; else None."""

    @property
    def norms(self) -> Tensor:
        """L2 norms [B]."""

    @property
    def layer_norms(self) -> Tensor:
        """L2 norms per layer [B, L]."""

    def weighted_sum(self, factors: Tensor) -> Tensor:
        """sum_i factors_i g_i [D]; factors [B], or [B, L] with one factor per layer."""

    def dot(self, vector: Tensor) -> Tensor:
        """<g_i, vector> [B] for a vector [D]."""
        return self.stack() @ vector

    @property
    def rounding(self) -> Tensor:
        """How far the terms of `weighted_sum` may be from the exact gradients, per layer [B, L]."""
        return 1e-6 * self.layer_norms.double()

    def double(self) -> "Gradients":
        """The same gradients, for exact inner products in float64."""

    def stack(self) -> Tensor:
        """All gradients [B, D], materialised."""

    def blocks(self) -> Iterator[Tensor]:
        """The columns of `stack` from left to right, a few at a time [B, d]."""
        return column_blocks(self.stack())


class PerExampleShift(NamedTuple):
    """A shift per example: example i is evaluated at theta + scales_i g_i; scales [B].

    gradients: of the same batch, computed by the same engine at theta.
    """

    gradients: Gradients
    scales: Tensor


Shift = Tensor | PerExampleShift
"""Where gradients are evaluated: at theta plus a common vector [D], or plus a shift per example."""


class Engine(Protocol):
    """Computes per-example gradients: of examples with K views [B, K, ...] the means over the
    views, and of users the means over their examples."""

    name: str
    model: nn.Module
    loss: Loss
    parameters: Parameters
    views: int
    options: ForwardOptions

    def __call__(self, batch: Batch, shift: Shift | None = None) -> Gradients:
        """The gradients at theta, or at theta plus `shift`; theta itself does not change."""

    def by_row(self, forward: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """forward(*tensors) [B, ...], where row i depends on the rows i of the tensors alone.

        forward: a pass of the model without gradients, and what is computed row by row from it.
        tensors: each [B, ...], the model's inputs first; B at least 1.
        """


def shift_vector(shift: Shift) -> Tensor:
    """The vector added to theta [D], or one per example, materialised [B, D]."""
    if isinstance(shift, Tensor):
        return shift
    return shift.scales.unsqueeze(1) * shift.gradients.stack()


class MaterialisedGradients(Gradients):
    """Materialised per-example gradients: losses [B], stack [B, D]."""

    def __init__(self, losses: Tensor, stack: Tensor, layers: tuple[Layer, ...]):
        self.losses = losses
        self._stack = stack
        self._layers = layers

    @cached_property
    def norms(self) -> Tensor:
        return self._norms(self._stack)

    @property
    def layer_norms(self) -> Tensor:
        return torch.stack([self._norms(self._stack[:, layer.at]) for layer in self._layers], 1)

    def _norms(self, rows: Tensor) -> Tensor:
        return squared_norms(rows).sqrt().to(rows)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        stack = self._stack
        if may_be_nonfinite(self.norms):
            stack = Weights(factors, used(factors)).zeroed(stack)
        if factors.dim() == 1:
            return factors @ stack
        pairs = zip(self._layers, factors.unbind(1), strict=True)
        return torch.cat([column @ stack[:, layer.at] for layer, column in pairs])

    def dot(self, vector: Tensor) -> Tensor:
        return self._stack @ vector.to(self._stack)

    def double(self) -> "MaterialisedGradients":
        return MaterialisedGradients(self.losses, self._stack.double(), self._layers)

    def stack(self) -> Tensor:
        return self._stack


class DelegatingGradients(Gradients):
    """Delegates to `base` every operation that it does not override; losses and counts are those of
    `base`."""

    def __init__(self, base: Gradients):
        self.base, self.losses, self.counts = base, base.losses, base.counts

    @property
    def norms(self) -> Tensor:
        return self.base.norms

    @property
    def layer_norms(self) -> Tensor:
        return self.base.layer_norms

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return self.base.weighted_sum(factors)

    def dot(self, vector: Tensor) -> Tensor:
        return self.base.dot(vector)

    @property
    def rounding(self) -> Tensor:
        return self.base.rounding

    def double(self) -> Gradients:
        return self.base.double()

    def stack(self) -> Tensor:
        return self.base.stack()


def empty(parameters: Parameters) -> MaterialisedGradients:
    """The gradients of an empty batch."""
    theta = parameters.theta.detach()
    return MaterialisedGradients(
        theta.new_zeros(0), theta.new_zeros(0, len(theta)), parameters.layers
    )


def row_by_row(
    parts: tuple[object, ...], forward: Callable[..., Tensor], *tensors: Tensor
) -> Tensor:
    """forward(*tensors) [B, ...] by a pass for each row; parts: what `forgotten` has."""
    outputs = []
    for part in zip(*(x.split(1) for x in tensors), strict=True):
        with forgotten(*parts, by_value=True):
            outputs.append(forward(*part))
    return torch.cat(outputs)


def joined(parts: Sequence[Gradients], layers: tuple[Layer, ...]) -> MaterialisedGradients:
    """The gradients of several batches as those of one."""
    losses, rows = (torch.cat(p) for p in ([p.losses for p in parts], [p.stack() for p in parts]))
    return MaterialisedGradients(losses, rows, layers)


def may_be_nonfinite(norms: Tensor) -> bool:
    """Whether gradients with these norms [B] may include one that a factor of 0 would make NaN."""
    return may_exceed(norms, sys.float_info.max)


def per_block(numbers: int, device: torch.device) -> int:
    """How many columns, rows or examples of so many numbers a block holds, at least one."""
    return max(1, (CPU_BLOCK if device.type == "cpu" else GPU_BLOCK) // max(1, numbers))


def column_blocks(stack: Tensor) -> Iterator[Tensor]:
    """Rows [B, D] in blocks [B, d] of columns, without a copy."""
    yield from stack.split(per_block(len(stack), stack.device), 1)


class Weights:
    """Factors [B] of the examples in a sum, and zeros in the place of rows that are excluded.

    used [B]: False for examples that are, so that it does not matter whether they are finite; None
    if none is.
    """

    def __init__(self, factors: Tensor, used: Tensor | None):
        self.factors, self._used = factors, used
        self._views: dict[tuple[bool, int, int], Tensor] = {}

    def zeroed(self, rows: Tensor) -> Tensor:
        """Rows [B K, ...], K of each example, set to zero where it is excluded."""
        return rows if self._used is None else selected(rows, self._by_row(self._used, rows))

    def scaled(self, rows: Tensor) -> Tensor:
        """The factors times `zeroed` rows."""
        return self.zeroed(rows) * self._by_row(self.factors, rows)

    def _by_row(self, x: Tensor, rows: Tensor) -> Tensor:
        """x [B] as [B K, 1, ...], made once for all rows of a shape."""
        key = x is self.factors, len(rows), rows.dim()
        if key not in self._views:
            times = len(rows) // len(x)
            by_row = x if times == 1 else x.repeat_interleave(times)
            self._views[key] = by_row.view(-1, *[1] * (rows.dim() - 1))
        return self._views[key]


def used(factors: Tensor) -> Tensor:
    """Whether any factor [B] or [B, L] of an example is not 0 [B]."""
    return factors != 0 if factors.dim() == 1 else (factors != 0).any(1)
