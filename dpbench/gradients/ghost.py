"""The fast engine: one forward and one backward pass, with book-keeping instead of gradients.

The backward pass stops at the modules' outputs; parameter gradients are never computed for the
batch. Each module's inputs and output gradients give the norms, and with the clipping factors
known, the clipped sum in one product per module (Bu et al. 2023, "Differentially private
optimization on large model at small cost", book-keeping).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dpbench.data.dataset import Batch
from dpbench.gradients.engine import Loss, Stacked, empty, flat_views
from dpbench.gradients.layers import RULES, LayerGradient, Seen, fallback
from dpbench.gradients.layers.rows import Rows
from dpbench.gradients.parameters import Parameters


class Unsupported(Exception):
    """Why book-keeping cannot be done for a model."""


@dataclass(frozen=True)
class Unit:
    """A module whose parameters are kept together: by its rule, or whole by the fallback.

    bare: parameters that the module uses itself beside children of its own; their first axis is 1,
    so a copy per example broadcasts over the batch as they do, and gets the example's gradient.
    """

    name: str
    module: nn.Module
    bare: tuple[str, ...] = ()


class Call(NamedTuple):
    """One call of a unit: its input, its output, and the version that the output had then."""

    a: Tensor
    output: Tensor
    version: int


class Ghost:
    """Per-example gradients by book-keeping, module by module.

    Modules in layers.RULES are kept in closed form, all others by their own vectorised adjoint.
    Raises Unsupported for tied weights here, and at the first batch for what only a pass shows.
    """

    name = "ghost"

    def __init__(self, model: nn.Module, loss: Loss, parameters: Parameters, views: int = 1):
        self.model, self.loss, self.parameters, self.views = model, loss, parameters, views
        shared = dict(model.named_parameters(remove_duplicate=False))
        if len(shared) > len(dict(model.named_parameters())):
            raise Unsupported("weights are tied")
        self._units = list(_units("", model))
        self.fallbacks = [
            u.name or "the model" for u in self._units if not u.bare and not _known(u.module)
        ]
        _refuse_random(u.module for u in self._units if not u.bare and not _known(u.module))
        self._calls: dict[nn.Module, Call] | None = None
        for unit in self._units:
            if not unit.bare:
                unit.module.register_forward_hook(self._note)

    def _note(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if self._calls is None:
            return
        if module in self._calls:
            raise Unsupported("a module is used more than once in a forward pass")
        if not inputs:
            raise Unsupported("a module is called with keyword arguments")
        if len(inputs) != 1 or not isinstance(output, Tensor):
            raise Unsupported("a module has other than one input and one output")
        self._calls[module] = Call(inputs[0].detach(), output, output._version)

    def __call__(self, batch: Batch, shift: Tensor | None = None) -> "GhostGradients | Stacked":
        if not len(batch):
            return empty(self.parameters)
        rows = flat_views(batch, self.views)
        values, copies = self._values(len(rows), shift)
        losses, calls = self._forward(rows, {**values, **copies})
        wanted = [*(call.output for call in calls.values()), *copies.values()]
        mean = losses.sum() / self.views
        adjoints = torch.autograd.grad(mean, wanted, materialize_grads=True)
        with torch.no_grad():
            b = dict(zip([*calls, *copies], adjoints, strict=True))
            kept = [rule for unit in self._units for rule in self._rules(unit, calls, b, values)]
        return GhostGradients(losses.detach().view(-1, self.views).mean(1), kept, self.parameters)

    def _values(
        self, rows: int, shift: Tensor | None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The parameters of this pass if they are not the model's, and copies of the bare ones."""
        values: dict[str, Tensor] = {}
        if shift is not None:
            theta = (self.parameters.theta.detach() + shift).requires_grad_()
            values = self.parameters.unflatten(theta)
        now = {**self.parameters.named, **values}
        copies = {
            name: now[name].detach().expand(rows, *now[name].shape[1:]).requires_grad_()
            for unit in self._units
            for name in unit.bare
        }
        return values, copies

    def _forward(
        self, batch: Batch, values: dict[str, Tensor]
    ) -> tuple[Tensor, dict[nn.Module, Call]]:
        """Losses [B K], and the call of every unit in their order."""
        self._calls = {}
        try:
            if values:
                outputs = functional_call(self.model, values, (batch.inputs,))
            else:
                outputs = self.model(batch.inputs)
            losses, calls = self.loss(outputs, batch.targets), self._calls
        finally:
            self._calls = None
        modules = [unit.module for unit in self._units if not unit.bare]
        if len(calls) < len(modules):
            raise Unsupported("a module's parameters are used without calling the module")
        if any(
            len(call.a) != len(batch) or len(call.output) != len(batch) for call in calls.values()
        ):
            raise Unsupported("a module's input has another first axis than the examples")
        if any(call.output._version != call.version for call in calls.values()):
            raise Unsupported("a module's output is changed in place")
        return losses, {module: calls[module] for module in modules}

    def _rules(
        self,
        unit: Unit,
        calls: dict[nn.Module, Call],
        b: dict,
        values: dict[str, Tensor],
    ) -> list[LayerGradient]:
        """The layers of a unit, from its call and the adjoints b of outputs and copies."""
        if unit.bare:
            copies = torch.cat([b[name].flatten(1) for name in unit.bare], 1)
            return [Rows(copies.unflatten(0, (-1, self.views)).sum(1))]

        def own() -> dict[str, Tensor]:
            prefix = f"{unit.name}." if unit.name else ""
            named = unit.module.named_parameters()
            return {n: values.get(prefix + n, p).detach() for n, p in named}

        seen = Seen(unit.module, calls[unit.module].a, b[unit.module], self.views, own)
        return [RULES[type(unit.module)](seen)] if _known(unit.module) else fallback(seen)


def _units(name: str, module: nn.Module) -> Iterator[Unit]:
    """The units below a module, in the order of theta; each parameter is in exactly one."""
    direct = {n: p for n, p in module.named_parameters(recurse=False) if p.requires_grad}
    below = any(p.requires_grad for c in module.children() for p in c.parameters())
    broadcast = all(p.dim() > 1 and len(p) == 1 for p in direct.values())
    if direct and not (below and broadcast):
        yield Unit(name, module)
        return
    prefix = f"{name}." if name else ""
    if direct:
        yield Unit(name, module, tuple(prefix + n for n in direct))
    for child_name, child in module.named_children():
        yield from _units(prefix + child_name, child)


def _known(module: nn.Module) -> bool:
    """Whether a module has a rule, and nothing about it that the rule does not know."""
    if isinstance(module, nn.Embedding) and (module.max_norm or module.scale_grad_by_freq):
        raise Unsupported("an embedding mixes examples (max_norm or scale_grad_by_freq)")
    return type(module) in RULES and all(p.requires_grad for p in module.parameters())


def _refuse_random(modules: Iterable[nn.Module]) -> None:
    """A fallback computes its module again, which must then do the same again."""
    for module in modules:
        for part in module.modules():
            if getattr(part, "p", 0) or getattr(part, "drop_prob", 0):
                raise Unsupported(f"{type(module).__name__} has no rule and draws random numbers")


class GhostGradients:
    """Per-example gradients known by what each layer saw: losses [B], one rule per layer."""

    def __init__(self, losses: Tensor, rules: list[LayerGradient], parameters: Parameters):
        self.losses = losses
        self._rules = rules
        self._layers = parameters.layers

    @cached_property
    def _squared(self) -> Tensor:
        with torch.no_grad():
            return torch.stack([rule.squared_norms() for rule in self._rules], 1)

    @property
    def norms(self) -> Tensor:
        return self._squared.sum(1).sqrt()

    @property
    def layer_norms(self) -> Tensor:
        return self._squared.sqrt()

    def weighted_sum(self, factors: Tensor) -> Tensor:
        columns = factors.unbind(1) if factors.dim() == 2 else [factors] * len(self._rules)

        def add(rules: list[LayerGradient]) -> Tensor:
            pairs = zip(rules, columns, strict=True)
            return torch.cat([rule.weighted_sum(column) for rule, column in pairs])

        with torch.no_grad():
            total = add(self._rules)
            if torch.isfinite(total).all():
                return total
            # 0 times infinity is NaN, so an example that is to be left out must be taken out.
            return add([rule.cleaned(factors) for rule in self._rules])

    def dot(self, vector: Tensor) -> Tensor:
        with torch.no_grad():
            pairs = zip(self._rules, self._layers, strict=True)
            return torch.stack([rule.dot(vector[layer.at]) for rule, layer in pairs]).sum(0)

    def stack(self) -> Tensor:
        with torch.no_grad():
            return torch.cat([rule.stack() for rule in self._rules], 1)
