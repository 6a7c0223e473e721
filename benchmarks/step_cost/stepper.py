"""The interface of timed steps, and the plain step without privacy."""

from typing import Protocol

import torch
from torch import Tensor, nn

from dpbench.learning.data.dataset import Batch

BOUND = 1.0
NOISE_MULTIPLIER = 1.0
LR = 1e-6
"""So small that the weights do not overflow in thousands of timed steps."""


class Stepper(Protocol):
    """One training step per call, on a fixed batch; the update divides by the batch size."""

    def __call__(self) -> None: ...

    def configure(self, lr: float, noise_multiplier: float) -> None:
        """Set both for the next steps."""

    def weights(self) -> Tensor:
        """The trainable weights [D] on the CPU, in the order of the model's parameters."""

    def wait(self) -> None:
        """Block until all steps are done."""


class TorchStepper:
    """The base of steppers that train a torch model with plain SGD."""

    def __init__(self, model: nn.Module, batch: Batch):
        self.batch = batch
        self.trained = [p for p in model.parameters() if p.requires_grad]

    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.trained]).cpu()

    def wait(self) -> None:
        if self.batch.targets.is_cuda:
            torch.cuda.synchronize()


class PlainStepper(TorchStepper):
    """Forward, backward, update: the baseline of all comparisons."""

    def __init__(self, model: nn.Module, batch: Batch, compiled: bool = False):
        super().__init__(model, batch)
        self.optimizer = torch.optim.SGD(self.trained, lr=LR)
        self._forward = torch.compile(model) if compiled else model

    def __call__(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        outputs = self._forward(self.batch.inputs)
        nn.functional.cross_entropy(outputs, self.batch.targets).backward()
        self.optimizer.step()

    def configure(self, lr: float, noise_multiplier: float) -> None:
        self.optimizer.param_groups[0]["lr"] = lr
