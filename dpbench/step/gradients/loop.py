"""The reference engine: one example at a time, in float64; simple, correct and slow."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dpbench.learning.data.examples import Batch
from dpbench.step.gradients.engine import (
    Loss,
    MaterialisedGradients,
    Shift,
    empty,
    row_by_row,
    shift_vector,
)
from dpbench.step.gradients.flatten import flatten
from dpbench.step.gradients.kept import forgotten
from dpbench.step.gradients.options import ForwardOptions
from dpbench.step.gradients.parameters import Parameters
from dpbench.system.errors import UserError


class Loop:
    """Per-example gradients [B, D] by one backward pass per example of a copy in float64,
    `model64`."""

    name = "loop"

    def __init__(self, model: nn.Module, loss: Loss, parameters: Parameters, views: int = 1):
        self.model, self.loss, self.parameters, self.views = model, loss, parameters, views
        self.options = ForwardOptions()  # the only ones that the reference supports
        self.model64 = copy.deepcopy(model).double()
        self.parameters64 = Parameters(self.model64)

    def __call__(self, batch: Batch, shift: Shift | None = None) -> MaterialisedGradients:
        self.model64.train(self.model.training)
        if not len(batch):
            return empty(self.parameters64)
        theta = self.parameters.theta.detach().double()
        shifted = theta if shift is None else theta + shift_vector(shift)
        pairs = zip(batch.split(1), shifted.expand(len(batch), -1), strict=True)
        losses, rows = zip(*(self._example(part, point) for part, point in pairs), strict=True)
        return MaterialisedGradients(torch.stack(losses), torch.stack(rows), self.parameters.layers)

    def by_row(self, forward: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        return row_by_row((self.model, self.loss), forward, *tensors)

    def _example(self, example: Batch, point: Tensor) -> tuple[Tensor, Tensor]:
        self.parameters64.theta.data.copy_(point)
        with forgotten(self.model64, self.loss, by_value=True):
            _, losses = self.unit_losses(example)
            return losses[0].detach(), self.parameters64.gradient(losses[0])

    def unit_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The inputs [B K, ...] and the losses [B] of one pass of the copy, in its current mode;
        UserError for a model that modifies its inputs in place."""
        flat = flatten(batch, self.views, self.parameters64.theta.detach())
        inputs = flat.rows.inputs.detach()
        if inputs.is_floating_point():
            inputs = inputs.double().requires_grad_()
        copied = inputs.clone()
        version = copied._version
        losses = self.loss(self.model64(copied), flat.rows.targets)
        if copied._version != version:
            raise UserError(
                "the model changes its inputs in place, so that a second pass over a batch would "
                "get other inputs; make its first operation one that is not in place."
            )
        return inputs, flat.losses(losses)
