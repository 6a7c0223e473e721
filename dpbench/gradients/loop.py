"""The reference engine: one example at a time, in float64, obviously right and slow."""

import copy

import torch
from torch import Tensor, nn

from dpbench.data.dataset import Batch
from dpbench.gradients.engine import Loss, Stacked
from dpbench.gradients.parameters import Parameters


class Loop:
    """Per-example gradients [B, D] in float64, by one backward pass per example."""

    name = "loop"

    def __init__(self, model: nn.Module, loss: Loss, parameters: Parameters):
        self.model, self.loss, self.parameters = model, loss, parameters
        self._double = copy.deepcopy(model).double()
        self._double_parameters = Parameters(self._double)

    def __call__(self, batch: Batch) -> Stacked:
        self._double.train(self.model.training)
        self._double_parameters.theta.data.copy_(self.parameters.theta.data)
        rows = [self._example(part) for part in batch.split(1) if len(part)]
        theta = self._double_parameters.theta
        losses = torch.stack([loss for loss, _ in rows]) if rows else theta.new_zeros(0)
        stack = torch.stack([row for _, row in rows]) if rows else theta.new_zeros(0, len(theta))
        return Stacked(losses, stack, self.parameters.layers)

    def _example(self, example: Batch) -> tuple[Tensor, Tensor]:
        inputs = example.inputs.double() if example.inputs.is_floating_point() else example.inputs
        loss = self.loss(self._double(inputs), example.targets)[0]
        return loss.detach(), self._double_parameters.gradient(loss)
