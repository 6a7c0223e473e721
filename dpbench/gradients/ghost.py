"""The fast engine: one forward and one backward pass, with book-keeping instead of gradients.

The backward pass stops at the modules' outputs; parameter gradients are never computed for the
batch. Each module's inputs and output gradients give the norms, and with the clipping factors
known, the clipped sum in one product per module (Bu et al. 2023, "Differentially private
optimization on large model at small cost", book-keeping).
"""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call

from dpbench.data.dataset import Batch
from dpbench.gradients.engine import Loss, Own, Shift, Stacked, empty, spoils
from dpbench.gradients.flatten import shown
from dpbench.gradients.layers import Seen
from dpbench.gradients.layers.rows import Rows
from dpbench.gradients.modules import Kept, Part, Unit, Unsupported, units
from dpbench.gradients.options import How
from dpbench.gradients.parameters import Parameters
from dpbench.gradients.perturbed import Common, Each
from dpbench.gradients.precision import full


class Call(NamedTuple):
    """One call of a unit: its input, the shape of its output, and where in the graph that is made.

    The output itself is let go, unless the backward pass needs it; it may be changed in place.
    """

    a: Tensor
    shape: torch.Size
    output: GradientEdge


class Ghost:
    """Per-example gradients by book-keeping, module by module.

    Modules in layers.RULES are kept in closed form, all others by their own vectorised adjoint.
    Raises Unsupported for tied weights here, and at the first batch for what only a pass shows.
    """

    name = "ghost"

    def __init__(self, model: nn.Module, loss: Loss, parameters: Parameters, views: int = 1):
        self.model, self.loss, self.parameters, self.views = model, loss, parameters, views
        self.how = How()
        shared = dict(model.named_parameters(remove_duplicate=False))
        if len(shared) > len(dict(model.named_parameters())):
            raise Unsupported("weights are tied")
        self._units = units(model)
        self.fallbacks = [unit.name or "the model" for unit in self._units if not unit.known]
        self._modules = [unit.module for unit in self._units if not unit.bare]
        self._calls: dict[nn.Module, Call] | None = None
        for module in self._modules:
            module.register_forward_hook(self._note)

    def _note(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        if self._calls is None:
            return None
        if module in self._calls:
            raise Unsupported("a module is used more than once in a forward pass")
        if not inputs:
            raise Unsupported("a module is called with keyword arguments")
        if len(inputs) != 1 or not isinstance(output, Tensor):
            raise Unsupported("a module has other than one input and one output")
        if not output.requires_grad:
            raise Unsupported("a module's output is cut off from its parameters")
        if output.is_leaf or output._is_view():
            output = output.clone()  # or it would move in the graph when it is changed in place
        self._calls[module] = Call(inputs[0].detach(), output.shape, get_gradient_edge(output))
        return output

    def __call__(self, batch: Batch, shift: Shift | None = None) -> "GhostGradients | Stacked":
        if not len(batch):
            return empty(self.parameters)
        seen = shown(batch, self.views, self.parameters.theta.detach())
        rows = self.how.laid_out(seen.rows)
        substitutes = self._substitutes(shift)
        place = self._place(shift, substitutes)
        copies = {
            name: value.repeat_interleave(len(rows) // len(value), 0).requires_grad_()
            for unit in self._units
            for name, value in place.bare(unit).items()
        }
        with self.how.precision.model(rows.targets.device):
            with place.taken():
                losses, calls = self._forward(rows, {**substitutes, **copies})
            made: dict[Part, tuple[GradientEdge, torch.Size]] = {
                **{module: (call.output, call.shape) for module, call in calls.items()},
                **{name: (get_gradient_edge(copy), copy.shape) for name, copy in copies.items()},
            }
            edges, shares = [edge for edge, _ in made.values()], seen.shares.flatten()
            adjoints = torch.autograd.grad(losses, edges, shares, allow_unused=True)
        with torch.no_grad():
            found: dict[Part, Tensor | None] = dict(zip(made, adjoints, strict=True))
            unused = self._unused(found, place, losses)
            b = {p: losses.new_zeros(made[p][1]) if x is None else x for p, x in found.items()}
            kept = {
                unit: self._kept(unit, calls, b, place, seen.each)._replace(used=unit not in unused)
                for unit in self._units
            }
        return GhostGradients(seen.losses(losses.detach()), kept, self.parameters)

    def _unused(
        self, adjoints: dict[Part, Tensor | None], place: Common | Each, losses: Tensor
    ) -> set[Unit]:
        """The units that the losses do not depend on, which is why they have no adjoint.

        Raises Unsupported if one has none for another reason.
        """
        unused = {unit for unit in self._units if any(adjoints[p] is None for p in unit.parts)}
        if unused and (lost := place.used(losses) & unused):
            name = min(unit.name for unit in lost) or "the model"
            raise Unsupported(f"the losses depend on {name}, and its gradient is lost")
        return unused

    def _substitutes(self, shift: Shift | None) -> dict[str, Tensor]:
        """The parameters at theta + a common shift [D], if there is one."""
        if not isinstance(shift, Tensor):
            return {}
        moved = self.parameters.unflatten(self.parameters.theta.detach() + shift)
        return {name: value.requires_grad_() for name, value in moved.items()}

    def _place(self, shift: Shift | None, substitutes: dict[str, Tensor]) -> Common | Each:
        if isinstance(shift, Own):
            if not isinstance(shift.gradients, GhostGradients):
                raise TypeError("a shift of each example's own needs gradients of this engine")
            return Each(self.parameters.named, shift.gradients.kept, shift.scales)
        return Common({**self.parameters.named, **substitutes}, self._units)

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
            losses, calls = self.loss(full(outputs), batch.targets), self._calls
        finally:
            self._calls = None
        if len(calls) < len(self._modules):
            raise Unsupported("a module's parameters are used without calling the module")
        if any(len(call.a) != len(batch) or call.shape[0] != len(batch) for call in calls.values()):
            raise Unsupported("a module's input has another first axis than the examples")
        return losses, {module: calls[module] for module in self._modules}

    def _kept(
        self, unit: Unit, calls: dict[nn.Module, Call], b: dict, place: Common | Each, each: int
    ) -> Kept:
        """The layers of a unit, from its call and the adjoints b of outputs and copies.

        each: rows of each example.
        """
        if unit.bare:
            copies = torch.cat([b[name].flatten(1) for name in unit.bare], 1)
            return Kept([Rows(copies.unflatten(0, (-1, each)).sum(1))], None)
        module = unit.module
        seen = Seen(
            *(module, full(calls[module].a), full(b[module]), each),
            values=lambda: place.values(unit),
            own=place.own,
        )
        return Kept(unit.rule.gradients(seen), seen)


class GhostGradients:
    """Per-example gradients known by what each layer saw: losses [B], and what units kept.

    All that was kept is detached from the graph that made it.
    """

    def __init__(self, losses: Tensor, kept: dict[Unit, Kept], parameters: Parameters):
        self.losses, self.kept = losses, kept
        self._rules = [rule for unit in kept.values() for rule in unit.gradients]
        self._layers = parameters.layers

    @cached_property
    def _squared(self) -> list[Tensor]:
        return [rule.squared_norms() for rule in self._rules]

    @cached_property
    def norms(self) -> Tensor:
        return torch.stack(self._squared).sum(0).sqrt().to(self.losses)

    @property
    def layer_norms(self) -> Tensor:
        return torch.stack(self._squared, 1).sqrt().to(self.losses)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        rules = self._rules
        if spoils(self.norms):
            rules = [rule.cleaned(factors) for rule in rules]
        columns = factors.unbind(1) if factors.dim() == 2 else [factors] * len(rules)
        total = factors.new_empty(self._layers[-1].at.stop)
        for rule, column, layer in zip(rules, columns, self._layers, strict=True):
            rule.write_sum(column, total[layer.at])
        return total

    def dot(self, vector: Tensor) -> Tensor:
        pairs = zip(self._rules, self._layers, strict=True)
        return torch.stack([rule.dot(vector[layer.at]) for rule, layer in pairs]).sum(0)

    def stack(self) -> Tensor:
        return torch.cat([rule.stack() for rule in self._rules], 1)
