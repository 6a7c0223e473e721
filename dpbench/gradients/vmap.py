"""The engine for any model: torch.func's vectorised gradients, all of them materialised."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from dpbench.data.dataset import Batch
from dpbench.gradients.engine import Loss, Stacked
from dpbench.gradients.parameters import Parameters


class Vmap:
    """Per-example gradients [B, D] by vectorising the gradient of one example."""

    name = "vmap"

    def __init__(self, model: nn.Module, loss: Loss, parameters: Parameters):
        self.model, self.loss, self.parameters = model, loss, parameters
        self._per_example = vmap(
            grad_and_value(self._example_loss), in_dims=(None, 0, 0), randomness="different"
        )

    def _example_loss(self, named: dict[str, Tensor], inputs: Tensor, target: Tensor) -> Tensor:
        outputs = functional_call(self.model, named, (inputs.unsqueeze(0),))
        return self.loss(outputs, target.unsqueeze(0)).squeeze(0)

    def __call__(self, batch: Batch) -> Stacked:
        theta = self.parameters.theta
        if not len(batch):
            return Stacked(theta.new_zeros(0), theta.new_zeros(0, len(theta)), self._layers)
        with torch.no_grad():
            named = {n: p.detach() for n, p in self.parameters.named.items()}
            gradients, losses = self._per_example(named, batch.inputs, batch.targets)
            stack = self.parameters.flatten(gradients, batched=True)
        return Stacked(losses, stack, self._layers)

    @property
    def _layers(self):
        return self.parameters.layers
