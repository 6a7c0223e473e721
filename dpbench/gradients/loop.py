"""The reference engine: one example at a time, in float64, obviously right and slow."""

import copy

import torch
from torch import Tensor, nn

from dpbench.data.dataset import Batch
from dpbench.gradients.engine import Loss, Stacked, empty, flat_views
from dpbench.gradients.parameters import Parameters


class Loop:
    """Per-example gradients [B, D] in float64, by one backward pass per example."""

    name = "loop"

    def __init__(self, model: nn.Module, loss: Loss, parameters: Parameters, views: int = 1):
        self.model, self.loss, self.parameters, self.views = model, loss, parameters, views
        self._double = copy.deepcopy(model).double()
        self._double_parameters = Parameters(self._double)

    def __call__(self, batch: Batch, shift: Tensor | None = None) -> Stacked:
        self._double.train(self.model.training)
        theta = self._double_parameters.theta.data.copy_(self.parameters.theta.data)
        if shift is not None:
            theta.add_(shift)
        pairs = [self._example(part) for part in batch.split(1) if len(part)]
        if not pairs:
            return empty(self._double_parameters)
        losses, rows = zip(*pairs, strict=True)
        return Stacked(torch.stack(losses), torch.stack(rows), self.parameters.layers)

    def _example(self, example: Batch) -> tuple[Tensor, Tensor]:
        rows = flat_views(example, self.views)
        inputs = rows.inputs.double() if rows.inputs.is_floating_point() else rows.inputs
        loss = self.loss(self._double(inputs), rows.targets).mean()
        return loss.detach(), self._double_parameters.gradient(loss)
