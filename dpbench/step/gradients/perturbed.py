"""The parameter values of one pass: shared by all examples, or perturbed for each of them.

The model's own parameters never change: `functional_call` substitutes shared values, and patched
forwards apply per-example ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dpbench.step.gradients.layers import LayerRule, Perturbation
from dpbench.step.gradients.modules import ModuleGradients, TrackedModule
from dpbench.step.gradients.precision import at_least_float32
from dpbench.step.gradients.rows import graph_of


class SharedParameters:
    """The same parameter values for every example, by name."""

    def __init__(self, named: Mapping[str, Tensor], tracked_modules: Sequence[TrackedModule]):
        self._named, self._tracked = named, tracked_modules

    def used(self, losses: Tensor) -> set[TrackedModule]:
        """The modules that losses depend on, found by walking the graph to their parameters."""
        leaves = {id(node.variable) for node in graph_of(losses) if hasattr(node, "variable")}
        return {
            tracked
            for tracked in self._tracked
            if any(id(self._named[name]) in leaves for name in tracked.trained)
        }

    def bare(self, tracked: TrackedModule) -> dict[str, Tensor]:
        """The bare parameters of a module [1, ...]."""
        return {name: self._named[name].detach() for name in tracked.bare}

    def values(self, tracked: TrackedModule) -> dict[str, Tensor]:
        """The parameters of a module, by their names in the module."""
        prefix = f"{tracked.name}." if tracked.name else ""
        named = tracked.module.named_parameters()
        return {n: self._named.get(prefix + n, p).detach() for n, p in named}

    def perturbation(self, tracked: TrackedModule) -> None:
        """There is none."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Nothing to install: the caller substitutes these values by `functional_call`."""
        yield


class PerExampleParameters:
    """theta + scales_i g_i for each example i, with the g_i of a pass at theta; scales [B]."""

    def __init__(
        self,
        named: Mapping[str, Tensor],
        by_module: dict[TrackedModule, ModuleGradients],
        scales: Tensor,
    ):
        self._named, self._by_module, self._scales = named, by_module, scales

    def used(self, losses: Tensor) -> set[TrackedModule]:
        """The modules that the losses depended on at theta."""
        return {tracked for tracked, gradients in self._by_module.items() if gradients.used}

    def bare(self, tracked: TrackedModule) -> dict[str, Tensor]:
        """The bare parameters of a module, one copy per example [B, ...]."""
        if not tracked.bare:
            return {}
        (gradient,) = self._by_module[tracked].gradients
        shapes = [self._named[name].shape for name in tracked.bare]
        rows = (gradient.stack() * self._scales.unsqueeze(1)).split([s.numel() for s in shapes], 1)
        return {
            name: self._named[name].detach() + part.reshape(-1, *shape[1:])
            for name, shape, part in zip(tracked.bare, shapes, rows, strict=True)
        }

    def perturbation(self, tracked: TrackedModule) -> Perturbation | None:
        """That of a module's parameters; none for a module that was not called at theta."""
        gradients, values, views, _ = self._by_module[tracked]
        if values is None:
            return None
        return Perturbation(tracked.module, views, values, gradients, self._scales)

    def values(self, tracked: TrackedModule) -> dict[str, Tensor]:
        """The parameters of a module by their names in it, with one copy per example [B, ...]."""
        if perturbation := self.perturbation(tracked):
            return perturbation.values()
        return {name: parameter.detach() for name, parameter in tracked.module.named_parameters()}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Within the context, modules compute with these values."""
        own: list[tuple[dict, Any]] = []
        try:
            for tracked in self._by_module:
                if perturbation := self.perturbation(tracked):
                    attributes = vars(tracked.module)
                    own.append((attributes, attributes.get("forward")))
                    tracked.module.forward = partial(self._outputs, tracked.rule, perturbation)
            yield
        finally:
            for attributes, forward in own:
                del attributes["forward"]
                if forward is not None:
                    attributes["forward"] = forward

    @staticmethod
    def _outputs(rule: LayerRule, perturbation: Perturbation, x: Tensor) -> Tensor:
        # In float32, like the gradients: autocast does not cover every operation of the rules.
        with torch.autocast(x.device.type, enabled=False):
            out = rule.perturbed_outputs(perturbation, at_least_float32(x))
        return out if out.requires_grad else out.requires_grad_()


PassParameters = SharedParameters | PerExampleParameters
