"""What every model is before it is built, and the loss that goes with each task."""

from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional as F


class Architecture(Protocol):
    """A model before its data set is known."""

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
"""The loss of a data set's task."""
