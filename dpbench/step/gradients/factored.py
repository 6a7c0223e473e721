"""Per-example gradients as the ghost engine has them: factored, module by module."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from dpbench.step.gradients.engine import Gradients, Weights, may_be_nonfinite, used
from dpbench.step.gradients.modules import ModuleGradients, TrackedModule
from dpbench.step.gradients.norms import evaluated
from dpbench.step.gradients.parameters import Parameters


class FactoredGradients(Gradients):
    """Per-example gradients by book-keeping, without a graph: losses [B], and factored by
    module."""

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
            self._squares = evaluated([gradient.squared_norm() for gradient in self._by_layer])
        return self._squares

    @property
    def norms(self) -> Tensor:
        if self._norms is None:
            first, *others = self._squared
            total = torch.stack(self._squared).sum(0) if others else first
            # Rounded as it is written: one operation.
            self._norms = torch.sqrt(total, out=torch.empty_like(self.losses))
        return self._norms

    @property
    def layer_norms(self) -> Tensor:
        return torch.stack(self._squared, 1).sqrt().to(self.losses)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        layers = self._by_layer
        kept = used(factors) if may_be_nonfinite(self.norms) else None
        if factors.dim() == 2:
            weights = [Weights(column, kept) for column in factors.unbind(1)]
        else:
            weights = [Weights(factors, kept)] * len(layers)
        small = [layer.small for layer in layers]
        total = factors.new_empty(self._layers[-1].at.stop)
        # A view takes as long as the sum of a small layer.
        alone = len(layers) == 1 and small[0] is None
        parts = (total,) if alone else total.split(self._sizes(small))
        written = (
            layer.write_sum(by, part)
            for layer, by, part in zip(layers, weights, parts[::2], strict=True)
            if alone or len(part)
        )
        late = [*filter(None, written)]
        if not alone:
            late += _write_small(small, weights, parts[1::2])
        if late:  # by one kernel
            places, sums = zip(*late, strict=True)
            torch._foreach_copy_(places, sums)
        return total

    def _sizes(self, small: list[Tensor | None]) -> list[int]:
        """The number of parameters outside and in the small part of each layer."""
        sizes = []
        for layer, rows in zip(self._layers, small, strict=True):
            last = 0 if rows is None else rows.shape[1]
            sizes += [layer.at.stop - layer.at.start - last, last]
        return sizes

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


def _write_small(
    small: Sequence[Tensor | None], weights: Sequence[Weights], parts: Sequence[Tensor]
) -> Iterable[tuple[Tensor, Tensor]]:
    """Writes the sums of small gradients [B, k] to their parts of the total, or returns parts and
    what is to be copied to them; weights: of each layer."""
    chosen = zip(small, weights, parts, strict=False)
    found = [(x, by, part) for x, by, part in chosen if x is not None]
    if len(found) > 1 and found[0][0].is_cuda and weights[0] is weights[-1]:
        # Few numbers: a copy takes less time on a GPU than to start an operation for each layer.
        rows, _, written = zip(*found, strict=True)
        joined = weights[0].zeroed(torch.cat(rows, 1))
        sums = torch.mv(joined.T, weights[0].factors).split([x.shape[1] for x in rows])
        return zip(written, sums, strict=True)
    for x, by, part in found:
        torch.mv(by.zeroed(x).T, by.factors, out=part)
    return ()
