"""The reference engine: one example at a time, in float64, obviously right and slow."""

import copy

import torch
from torch import Tensor, nn

from dpbench.data.dataset import Batch
from dpbench.gradients.engine import Loss, Shift, Stacked, empty, moves
from dpbench.gradients.how import How
from dpbench.gradients.parameters import Parameters
from dpbench.gradients.shown import shown


class Loop:
    """Per-example gradients [B, D] in float64, by one backward pass per example."""

    name = "loop"

    def __init__(self, model: nn.Module, loss: Loss, parameters: Parameters, views: int = 1):
        self.model, self.loss, self.parameters, self.views = model, loss, parameters, views
        self.how = How()  # the reference knows no other
        self._double = copy.deepcopy(model).double()
        self._double_parameters = Parameters(self._double)

    def __call__(self, batch: Batch, shift: Shift | None = None) -> Stacked:
        self._double.train(self.model.training)
        if not len(batch):
            return empty(self._double_parameters)
        theta = self.parameters.theta.detach().double()
        places = theta.expand(len(batch), -1) if shift is None else theta + moves(shift)
        pairs = zip(batch.split(1), places.expand(len(batch), -1), strict=True)
        losses, rows = zip(*(self._example(part, place) for part, place in pairs), strict=True)
        return Stacked(torch.stack(losses), torch.stack(rows), self.parameters.layers)

    def _example(self, example: Batch, place: Tensor) -> tuple[Tensor, Tensor]:
        self._double_parameters.theta.data.copy_(place)
        seen = shown(example, self.views, place)
        rows = seen.rows
        inputs = rows.inputs.double() if rows.inputs.is_floating_point() else rows.inputs
        loss = seen.losses(self.loss(self._double(inputs), rows.targets)).squeeze(0)
        return loss.detach(), self._double_parameters.gradient(loss)
