"""The interface of architectures, and the loss of each task."""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbench.errors import UserError
from dpbench.models.modes import in_mode
from dpbench.seeds import torch_state_kept


class Architecture(Protocol):
    """A model whose input shape and number of classes are not yet known."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A model from inputs [B, *shape] to outputs [B, classes], freshly initialised."""
        ...


def check_outputs(model: nn.Module, inputs: Tensor, classes: int) -> None:
    """UserError unless the model's outputs for these inputs [B, ...] are [B, classes]."""
    for training in (True, False):
        with torch_state_kept(inputs.device), torch.no_grad(), in_mode(model, training):
            outputs = model(inputs)
        _check_shape(outputs, len(inputs), classes)


def _check_shape(outputs: object, examples: int, classes: int) -> None:
    if not isinstance(outputs, Tensor) or outputs.shape != (examples, classes):
        given = [*outputs.shape] if isinstance(outputs, Tensor) else type(outputs).__name__
        raise UserError(
            f"the model's outputs for {examples} examples are {given} and must be a tensor of "
            f"shape {[examples, classes]}, one output for each class (or 1 for regression): "
            "build the model for the number of classes that it is given."
        )


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Losses [B] in nats, from outputs [B, K] and class numbers [B]."""
    return F.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Losses [B] in the targets' unit squared, from outputs [B, 1] and numbers [B]."""
    return (outputs.squeeze(1) - targets).square()


LOSSES = {"classification": cross_entropy, "regression": squared_error}
"""The loss by the task of a data set."""
