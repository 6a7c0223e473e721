"""The engine for any model: vectorised gradients by torch.func, all of them materialised."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._functorch import autograd_function
from torch.func import functional_call, grad_and_value, vmap

from dpbench.learning.data.examples import Batch
from dpbench.step.gradients.engine import Loss, MaterialisedGradients, Shift, empty, shift_vector
from dpbench.step.gradients.flatten import flatten
from dpbench.step.gradients.kept import forgotten
from dpbench.step.gradients.options import ForwardOptions
from dpbench.step.gradients.parameters import Parameters
from dpbench.step.gradients.precision import at_least_float32
from dpbench.step.gradients.recurrent import unrolled
from dpbench.step.gradients.rows.tracer import Calls
from dpbench.system.errors import UserError

NOT_APART = (
    "engine=vmap cannot be used with this model, because {}; use engine=loop, which is slow, or {}."
)


@contextmanager
def rules_refused() -> Iterator[None]:
    """Within the context, torch raises RuntimeError for an autograd.Function with a rule of its own
    for batches: Python code that sees all examples."""

    def refused(function: type[torch.autograd.Function]) -> bool:
        if has_rule(function):
            raise RuntimeError(
                f"{function.__name__} has a vmap rule of its own, which sees all examples: delete "
                "it, and set generate_vmap_rule = True"
            )
        return False

    of_torch: Any = autograd_function
    has_rule = of_torch.has_overridden_vmap_rule
    of_torch.has_overridden_vmap_rule = refused
    try:
        yield
    finally:
        of_torch.has_overridden_vmap_rule = has_rule


@contextmanager
def seen_apart(model: nn.Module, units: int) -> Iterator[None]:
    """The context of a vectorised pass; raises UserError if Python code saw several units."""
    with Calls() as calls:
        yield
    if units < 2:
        return
    hooks = calls.hooks or any(m._backward_hooks or m._backward_pre_hooks for m in model.modules())
    for found, why, instead in (
        (hooks, "gradients pass through a hook, which sees all examples", "remove the hook"),
        (calls.read, "Python prints values, those of all examples", "do not print them"),
        (
            calls.error,
            f"it catches an error ({calls.error}), which torch raises for all if for one example",
            "test values before they are used",
        ),
    ):
        if found:
            raise UserError(NOT_APART.format(why, instead))


class Vmap:
    """Per-example gradients [B, D] by vectorising the gradient of one example.

    reason: why it takes the place of the book-keeping engine, if it does.
    """

    name = "vmap"
    reason = ""

    def __init__(self, model: nn.Module, loss: Loss, parameters: Parameters, views: int = 1):
        self.model, self.loss, self.parameters, self.views = model, loss, parameters, views
        self.options = ForwardOptions()
        self._per_example, self._per_example_shifted = (
            vmap(grad_and_value(self.unit_loss), (axis, 0, 0, 0), randomness="different")
            for axis in (None, 0)
        )

    def unit_loss(
        self, named: dict[str, Tensor], inputs: Tensor, targets: Tensor, shares: Tensor
    ) -> Tensor:
        """The loss of one unit: the mean of its rows [K, ...], weighted by shares [K]."""
        with unrolled(self.model), rules_refused():
            outputs = functional_call(self.model, named, (inputs,))
            return (self.loss(at_least_float32(outputs), targets) * shares).sum()

    def rows(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of `unit_loss` after the parameters, for all units of a batch."""
        flat = flatten(batch, self.views, self.parameters.theta.detach())
        rows = self.options.in_memory_format(flat.rows)
        inputs, targets = (t.unflatten(0, flat.shape) for t in (rows.inputs, rows.targets))
        return inputs, targets, flat.shares

    def by_row(self, forward: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        def row(*parts: Tensor) -> Tensor:
            with unrolled(self.model), rules_refused():
                return forward(*(part.unsqueeze(0) for part in parts)).squeeze(0)

        with forgotten(self.model, self.loss), seen_apart(self.model, len(tensors[0])):
            return vmap(row, randomness="different")(*tensors)

    def __call__(self, batch: Batch, shift: Shift | None = None) -> MaterialisedGradients:
        if not len(batch):
            return empty(self.parameters)
        theta = self.parameters.theta.detach()
        with torch.no_grad():
            theta = theta if shift is None else theta + shift_vector(shift)
        per_example = self._per_example_shifted if theta.dim() == 2 else self._per_example
        return self.vectorised(per_example, theta, batch)

    def vectorised(
        self, per_example: Callable[..., Any], theta: Tensor, batch: Batch
    ) -> MaterialisedGradients:
        """The gradients that per_example gives, and the losses, from the parameters at theta [D] or
        [B, D] and from `rows`, as a vectorised `unit_loss` does."""
        with (
            torch.no_grad(),
            self.options.precision.model(batch.targets.device),
            forgotten(self.model, self.loss),
            seen_apart(self.model, len(batch)),
        ):
            named = self.parameters.unflatten(theta)
            gradients, losses = per_example(named, *self.rows(batch))
            stack = self.parameters.flatten(gradients, batched=True)
        return MaterialisedGradients(losses, stack, self.parameters.layers)
