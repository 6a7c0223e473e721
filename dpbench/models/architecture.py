"""What every model is before it is built, and the loss that goes with classification."""

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
