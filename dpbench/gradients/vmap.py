"""The engine for any model: torch.func's vectorised gradients, all of them materialised."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from dpbench.data.dataset import Batch
from dpbench.gradients.engine import Loss, Stacked, empty
from dpbench.gradients.parameters import Parameters


class Vmap:
    """Per-example gradients [B, D] by vectorising the gradient of one example."""

    name = "vmap"

    def __init__(self, model: nn.Module, loss: Loss, parameters: Parameters, views: int = 1):
        self.model, self.loss, self.parameters, self.views = model, loss, parameters, views
        self._per_example = vmap(
            grad_and_value(self._example_loss), in_dims=(None, 0, 0), randomness="different"
        )

    def _example_loss(self, named: dict[str, Tensor], inputs: Tensor, target: Tensor) -> Tensor:
        rows = inputs if self.views > 1 else inputs.unsqueeze(0)
        outputs = functional_call(self.model, named, (rows,))
        return self.loss(outputs, target.expand(self.views, *target.shape)).mean()

    def __call__(self, batch: Batch, shift: Tensor | None = None) -> Stacked:
        if not len(batch):
            return empty(self.parameters)
        theta = self.parameters.theta.detach()
        with torch.no_grad():
            named = self.parameters.unflatten(theta if shift is None else theta + shift)
            gradients, losses = self._per_example(named, batch.inputs, batch.targets)
            stack = self.parameters.flatten(gradients, batched=True)
        return Stacked(losses, stack, self.parameters.layers)
