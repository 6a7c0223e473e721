"""The fast engine: one forward and one backward pass, with book-keeping instead of gradients.

The backward pass stops at the modules' outputs; parameter gradients are never computed for the
batch. Each module's inputs and output gradients give the norms, and with the clipping factors
known, the clipped sum in one product per module (Bu et al. 2023, "Differentially private
optimization on large model at small cost", book-keeping).
"""

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import FunctionType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.modes import in_mode
from dpbench.step.gradients.backward import Output, Receiver, adjoints
from dpbench.step.gradients.engine import (
    EngineFallback,
    Loss,
    MaterialisedGradients,
    PerExampleShift,
    Shift,
    empty,
    joined,
    row_by_row,
    shift_vector,
)
from dpbench.step.gradients.factored import FactoredGradients
from dpbench.step.gradients.flatten import flatten
from dpbench.step.gradients.forward_calls import ForwardCall, ForwardCalls
from dpbench.step.gradients.kept import forgotten
from dpbench.step.gradients.layers import ModuleCall
from dpbench.step.gradients.layers.materialised import Rows
from dpbench.step.gradients.logistic import LogisticRegression, is_logistic
from dpbench.step.gradients.modules import (
    AdjointKey,
    ModuleGradients,
    RowsMoved,
    TrackedModule,
    Unsupported,
    refusing_random,
    tracked_modules,
)
from dpbench.step.gradients.options import ForwardOptions
from dpbench.step.gradients.parameters import Parameters
from dpbench.step.gradients.perturbed import PassParameters, PerExampleParameters, SharedParameters
from dpbench.step.gradients.precision import at_least_float32
from dpbench.step.gradients.products import FLOAT32_PRODUCTS
from dpbench.step.gradients.rows import RowCheck, same_draws
from dpbench.system.seeds import torch_state_kept

FULL_PRECISION = ForwardOptions()


class ForwardPass(NamedTuple):
    """The parameters of a pass, those with a copy for each row, its losses [B K], and the calls of
    modules."""

    parameters: PassParameters
    copies: dict[str, Tensor]
    losses: Tensor
    calls: dict[nn.Module, ForwardCall]


class Ghost:
    """Per-example gradients by book-keeping, module by module.

    Modules with a rule in `layers.rules` have gradients in closed form, all others by their
    vectorised adjoint. Where the rows of a batch move inside the model (see `rows`), examples are
    computed one by one. Raises Unsupported: at construction for tied weights, and at the first
    batch for restrictions that only a pass reveals.
    """

    name = "ghost"
    _warned = False

    def __init__(self, model: nn.Module, loss: Loss, parameters: Parameters, views: int = 1):
        self.model, self.loss, self.parameters, self.views = model, loss, parameters, views
        self.options = ForwardOptions()
        trained = [p for _, p in model.named_parameters(remove_duplicate=False) if p.requires_grad]
        if len(trained) > len({*trained}):
            raise Unsupported("weights are tied")
        self._tracked = tracked_modules(model)
        self.fallbacks = [
            tracked.name or "the model" for tracked in self._tracked if not tracked.has_rule
        ]
        self._modules = [tracked.module for tracked in self._tracked if not tracked.bare]
        self._row_check = RowCheck(model, loss, self._modules, views)
        self._calls = ForwardCalls(self._tracked, self._row_check)
        known = loss is cross_entropy and views == 1 and is_logistic(model)
        self._logistic = LogisticRegression(model, hooks=2) if known else None

    @property
    def alone(self) -> str:
        """Why examples are computed one by one; "" if they are not."""
        return self._row_check.alone

    def by_row(self, forward: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        if len(tensors[0]) > 1 and not self.alone:
            try:
                out = self._in_one_pass(forward, tensors)
                if not self.alone:
                    return out
            except RowsMoved:
                pass
        return row_by_row((self.model, self.loss), forward, *tensors)

    def _in_one_pass(self, forward: Callable[..., Tensor], tensors: Sequence[Tensor]) -> Tensor:
        """What a function computes of all rows; raises RowsMoved if they change places."""
        of = forward.__code__ if isinstance(forward, FunctionType) else forward
        if self._row_check.few_first(tensors[0], tensors[1:], of):
            with same_draws(tensors[0].device):
                self._in_one_pass(forward, [x[: self._row_check.few] for x in tensors])
        with self._row_check.during(tensors[0], tensors[1:], of):
            out = forward(*tensors)
            self._row_check.require(out)
        return out

    def settled(self, batch: Batch) -> Hashable | None:
        """What determines the operations of a pass of a batch, so that another can be captured;
        None if they may differ from pass to pass, or none was followed."""
        rows = flatten(batch, self.views, self.parameters.theta).rows
        return self._row_check.settled(rows.inputs, rows.targets)

    def check(self, batch: Batch) -> None:
        """Raise Unsupported for a model that moves rows in either mode, or in which a module
        without a rule draws random numbers in training: the fallback would draw others."""
        without_rule = [tracked.module for tracked in self._tracked if not tracked.has_rule]
        theta = self.parameters.theta.detach()
        rows = flatten(batch, self.views, theta).rows
        with torch_state_kept(theta.device):
            if without_rule:
                with (
                    in_mode(self.model, training=True),
                    torch.no_grad(),
                    refusing_random(without_rule, theta.device),
                ):
                    self.model(rows.inputs)
            for training in (False, True):
                with in_mode(self.model, training):
                    self._pass(rows, None)

    def __call__(
        self, batch: Batch, shift: Shift | None = None
    ) -> FactoredGradients | MaterialisedGradients:
        if not len(batch):
            return empty(self.parameters)
        if shift is None and (known := self._in_closed_form(batch)):
            return known
        if isinstance(shift, PerExampleShift) and isinstance(
            shift.gradients, MaterialisedGradients
        ):
            return self._one_by_one(batch, shift)
        if self.alone and len(batch) > 1:
            return self._one_by_one(batch, shift)
        try:
            return self._together(batch, shift)
        except RowsMoved:
            if len(batch) == 1:
                raise
            return self._one_by_one(batch, shift)

    def _in_closed_form(self, batch: Batch) -> FactoredGradients | None:
        """The gradients of logistic regression, with the bits of `_together` in half of the time;
        None where something else may be computed."""
        logistic = self._logistic
        if not logistic or self.options != FULL_PRECISION or not logistic.fits(batch):
            return None
        losses, a, b = logistic.pass_of(batch)
        (tracked,) = self._tracked
        parameters = SharedParameters(self.parameters.named, self._tracked)
        call = ModuleCall(tracked.module, a, b, 1, values=lambda: parameters.values(tracked))
        return FactoredGradients(losses, {tracked: tracked.gradients(call)}, self.parameters)

    def _one_by_one(self, batch: Batch, shift: Shift | None) -> MaterialisedGradients:
        """The gradients by a pass for each unit, in which no other's rows are to be found."""
        self.warn_once()
        parts = batch.split(1)
        vectors: Iterable[Tensor | None] = [None] * len(parts)
        if shift is not None:
            vectors = shift_vector(shift).expand(len(batch), -1)
        gradients = []
        for part, vector in zip(parts, vectors, strict=True):
            with forgotten(self.model, self.loss):
                gradients.append(self(part, vector))
        return joined(gradients, self.parameters.layers)

    def warn_once(self) -> None:
        """Warn if examples are computed one by one, unless that was said before."""
        if self.alone and not self._warned:
            why = f"engine=ghost: {self.alone}; computing gradients one by one, which is slow."
            warnings.warn(why, EngineFallback, stacklevel=3)
            self._warned = True

    def _together(self, batch: Batch, shift: Shift | None) -> FactoredGradients:
        """The gradients by one pass for all units; raises RowsMoved if rows do not stay in their
        places."""
        flat = flatten(batch, self.views, self.parameters.theta)
        rows = self.options.in_memory_format(flat.rows)
        with self.options.precision.model(rows.targets.device):
            parameters, copies, losses, calls = self._pass(rows, shift)
            if self.alone and len(batch) > 1:
                raise RowsMoved(self.alone)
            outputs: dict[AdjointKey, Output] = {
                **{module: call.output for module, call in calls.items()},
                **{name: Output.of(copy) for name, copy in copies.items()},
            }
            form = partial(self._module_gradients, calls, parameters, flat.shape)
            formed: dict[TrackedModule, ModuleGradients] = {}
            receivers: dict[AdjointKey, Receiver] = {
                tracked.module: partial(_form_at_once, tracked, form, formed)
                for tracked in self._tracked
                if tracked.formed_at_once and tracked.module in calls
            }
            found = adjoints(flat.total(losses), outputs, receivers)
        unused = self._unused({*self._tracked} - {*formed}, found, parameters, losses)
        with torch.no_grad():
            b = {
                key: losses.new_zeros(outputs[key].shape) if adjoint is None else adjoint
                for key, adjoint in found.items()
            }
            del found  # operands may be copies, one module after the other
            by_module = {
                tracked: formed.get(tracked)
                or form(tracked, b)._replace(used=tracked not in unused)
                for tracked in self._tracked
            }
        return FactoredGradients(flat.losses(losses.detach()), by_module, self.parameters)

    def _pass(self, rows: Batch, shift: Shift | None) -> ForwardPass:
        per_example = isinstance(shift, PerExampleShift)
        if not per_example and self._row_check.few_first(rows.inputs, [rows.targets]):
            with same_draws(rows.inputs.device):
                self._pass(rows.each(lambda t: t[: self._row_check.few]), shift)
        substitutes = self._substitutes(shift)
        parameters = self._pass_parameters(shift, substitutes)
        copies = {
            name: value.repeat_interleave(len(rows) // len(value), 0).requires_grad_()
            for tracked in self._tracked
            for name, value in parameters.bare(tracked).items()
        }
        following = (
            self._row_check.apart(
                len(rows)
            )  # the operations of rules, after a pass that was followed
            if per_example
            else self._row_check.during(
                rows.inputs, [rows.targets, *copies.values()], values=substitutes
            )
        )
        with parameters.installed():
            losses, calls = self._forward(rows, {**substitutes, **copies}, following)
        return ForwardPass(parameters, copies, losses, calls)

    def _unused(
        self,
        modules: set[TrackedModule],
        adjoints: dict[AdjointKey, Tensor | None],
        parameters: PassParameters,
        losses: Tensor,
    ) -> set[TrackedModule]:
        """Those of the modules without an adjoint, because the losses do not depend on them.

        Raises Unsupported if one has none for another reason.
        """
        unused = {
            tracked
            for tracked in modules
            if any(adjoints.get(key) is None for key in tracked.adjoint_keys)
        }
        if unused and (missing := parameters.used(losses) & unused):
            name = min(tracked.name for tracked in missing) or "the model"
            raise Unsupported(f"the losses depend on {name}, and its gradient is lost")
        return unused

    def _substitutes(self, shift: Shift | None) -> dict[str, Tensor]:
        """The parameters at theta plus a common shift [D]; none without such a shift."""
        if not isinstance(shift, Tensor):
            return {}
        shifted = self.parameters.unflatten(self.parameters.theta.detach() + shift)
        return {name: value.requires_grad_() for name, value in shifted.items()}

    def _pass_parameters(
        self, shift: Shift | None, substitutes: dict[str, Tensor]
    ) -> PassParameters:
        if isinstance(shift, PerExampleShift):
            if not isinstance(shift.gradients, FactoredGradients):
                raise TypeError("a shift per example needs gradients of this engine")
            return PerExampleParameters(
                self.parameters.named, shift.gradients.by_module, shift.scales
            )
        return SharedParameters({**self.parameters.named, **substitutes}, self._tracked)

    def _forward(
        self, batch: Batch, values: dict[str, Tensor], following: AbstractContextManager[object]
    ) -> tuple[Tensor, dict[nn.Module, ForwardCall]]:
        """Losses [B K], and the calls of the tracked modules, in the modules' order."""
        with self._calls.recorded(len(batch)) as calls, following:
            if values:
                outputs = functional_call(self.model, values, (batch.inputs,))
            else:
                outputs = self.model(batch.inputs)
            losses = self.loss(at_least_float32(outputs), batch.targets)
            self._row_check.end(losses)
        return losses, {module: calls[module] for module in self._modules if module in calls}

    def _module_gradients(
        self,
        calls: dict[nn.Module, ForwardCall],
        parameters: PassParameters,
        shape: tuple[int, int],
        tracked: TrackedModule,
        b: dict[AdjointKey, Tensor],
    ) -> ModuleGradients:
        """The gradients of a module's layers, from its call and adjoint, which are taken out of
        calls and b.

        shape: the number of units, and that of rows in each.
        """
        units, rows_per_unit = shape
        if tracked.bare:
            copies = torch.cat([b[name].flatten(1) for name in tracked.bare], 1)
            return ModuleGradients([Rows(copies.unflatten(0, (-1, rows_per_unit)).sum(1))])
        module = tracked.module
        if module not in calls:
            return ModuleGradients([Rows(zeros) for zeros in tracked.zeros(units)])
        products = self.options.products if tracked.rule.multiplied else FLOAT32_PRODUCTS
        call = ModuleCall(
            module,
            products.operand(at_least_float32(calls.pop(module).a)),
            products.operand(at_least_float32(b.pop(module))),
            rows_per_unit,
            values=lambda: parameters.values(tracked),
            perturbation=parameters.perturbation(tracked),
            products=products,
        )
        return tracked.gradients(call)


def _form_at_once(
    tracked: TrackedModule,
    form: Callable[[TrackedModule, dict[AdjointKey, Tensor]], ModuleGradients],
    formed: dict[TrackedModule, ModuleGradients],
    adjoint: Tensor,
) -> None:
    """Adds a module's gradients to those that are formed, when its adjoint is known."""
    with torch.no_grad():
        formed[tracked] = form(tracked, {tracked.module: adjoint})
