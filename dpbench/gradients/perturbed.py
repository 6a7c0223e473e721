"""Where a model's parameters are during one pass: at one place for all, or at one for each example.

The model's own parameters never move: it computes with substitutes, or its modules are made to.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from dpbench.gradients.layers.layer import moved_values
from dpbench.gradients.modules import Kept, Unit
from dpbench.gradients.precision import full


class Common:
    """All parameters at the same place for every example, by their names."""

    own = False

    def __init__(self, named: Mapping[str, Tensor], units: Sequence[Unit]):
        self._named, self._units = named, units

    def used(self, losses: Tensor) -> set[Unit]:
        """The units that losses were computed from, by the graph that leads to their parameters."""
        found = {id(leaf) for leaf in _leaves(losses)}
        return {
            unit
            for unit in self._units
            if any(id(self._named[name]) in found for name in unit.trained)
        }

    def bare(self, unit: Unit) -> dict[str, Tensor]:
        """A unit's bare parameters [1, ...]."""
        return {name: self._named[name].detach() for name in unit.bare}

    def values(self, unit: Unit) -> dict[str, Tensor]:
        """A module's parameters, by their names in it."""
        prefix = f"{unit.name}." if unit.name else ""
        named = unit.module.named_parameters()
        return {n: self._named.get(prefix + n, p).detach() for n, p in named}

    @contextmanager
    def taken(self) -> Iterator[None]:
        """While this lasts, modules compute with these values; here it is up to the caller."""
        yield


class Each:
    """Parameters moved by scales_i g_i [B] for each example: g_i as kept by a pass at theta."""

    own = True

    def __init__(self, named: Mapping[str, Tensor], kept: dict[Unit, Kept], scales: Tensor):
        self._named, self._kept, self._scales = named, kept, scales

    def used(self, losses: Tensor) -> set[Unit]:
        """The units that losses at theta were computed from, as those here are no less."""
        return {unit for unit, kept in self._kept.items() if kept.used}

    def bare(self, unit: Unit) -> dict[str, Tensor]:
        """Bare parameters of each example's own [B, ...]."""
        if not unit.bare:
            return {}
        (gradient,) = self._kept[unit].gradients
        shapes = [self._named[name].shape for name in unit.bare]
        rows = (gradient.stack() * self._scales.unsqueeze(1)).split([s.numel() for s in shapes], 1)
        return {
            name: self._named[name].detach() + part.reshape(-1, *shape[1:])
            for name, shape, part in zip(unit.bare, shapes, rows, strict=True)
        }

    def values(self, unit: Unit) -> dict[str, Tensor]:
        """A module's parameters, by their names in it; of each example's own [B, ...]."""
        gradients, seen, _ = self._kept[unit]
        assert seen
        return moved_values(seen, gradients, self._scales)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """While this lasts, modules compute with these values."""
        moved = [unit for unit in self._kept if not unit.bare]
        try:
            for unit in moved:
                unit.module.forward = partial(self._outputs, unit)
            yield
        finally:
            for unit in moved:
                vars(unit.module).pop("forward", None)

    def _outputs(self, unit: Unit, x: Tensor) -> Tensor:
        gradients, seen, _ = self._kept[unit]
        assert seen
        # In float32, like those gradients: autocast does not know all that rules do.
        with torch.autocast(x.device.type, enabled=False):
            out = unit.rule.moved(seen, list(gradients), self._scales, full(x))
        return out if out.requires_grad else out.requires_grad_()


def _leaves(value: Tensor) -> Iterator[Tensor]:
    """The tensors that a value was computed from and that have a gradient of their own."""
    met, ahead = set(), [value.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in met:
            continue
        met.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        ahead.extend(after for after, _ in node.next_functions)
