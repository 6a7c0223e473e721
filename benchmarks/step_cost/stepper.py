"""The interface of timed steps, and the plain step without privacy."""

import itertools
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from dpbench.learning.data.examples import Batch

BOUND = 1.0
NOISE_MULTIPLIER = 1.0
LR = 1e-6
"""So small that the weights do not overflow in thousands of timed steps."""


class Stepper(Protocol):
    """One training step per call, on the case's next batch; the update divides by the size of the
    first one."""

    def __call__(self) -> None: ...

    def configure(self, lr: float, noise_multiplier: float) -> None:
        """Set both for the next steps."""

    def weights(self) -> Tensor:
        """The trainable weights [D] on the CPU, in the order of the model's parameters."""

    def wait(self) -> None:
        """Block until all steps are done."""


class TorchStepper:
    """The base of steppers that train a torch model with plain SGD.

    batches: an endless turn of them.
    """

    def __init__(self, model: nn.Module, batches: Sequence[Batch]):
        self.expected_batch_size = len(batches[0])
        self.batches = itertools.cycle(batches)
        self._on_gpu = batches[0].targets.is_cuda
        self.trained = [p for p in model.parameters() if p.requires_grad]

    def weights(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.trained]).cpu()

    def wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()


class PlainStepper(TorchStepper):
    """Forward, backward, update: the baseline of all comparisons. It divides by the batch's own
    size."""

    def __init__(self, model: nn.Module, batches: Sequence[Batch], compiled: bool = False):
        super().__init__(model, batches)
        self.optimizer = torch.optim.SGD(self.trained, lr=LR)
        self._forward = torch.compile(model) if compiled else model

    def __call__(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        batch = next(self.batches)
        outputs = self._forward(batch.inputs)
        nn.functional.cross_entropy(outputs, batch.targets).backward()
        self.optimizer.step()

    def configure(self, lr: float, noise_multiplier: float) -> None:
        self.optimizer.param_groups[0]["lr"] = lr
