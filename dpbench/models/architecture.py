"""The interface of architectures, and the loss of each task."""

from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional as F


class Architecture(Protocol):
    """A model whose input shape and number of classes are not yet known."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A model from inputs [B, *shape] to outputs [B, classes], freshly initialised."""
        ...


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Losses [B] in nats, from outputs [B, K] and class numbers [B]."""
    return F.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Losses [B] in the targets' unit squared, from outputs [B, 1] and numbers [B]."""
    return (outputs.squeeze(1) - targets).square()


LOSSES = {"classification": cross_entropy, "regression": squared_error}
"""The loss by the task of a data set."""
