"""Layers of which only the bias is trained, and the weight is frozen."""

from torch import Tensor, nn

from dpbench.step.gradients.layers.layer import ModuleCall
from dpbench.step.gradients.layers.materialised import Rows
from dpbench.step.gradients.layers.patches import over_image

LAST = (nn.Linear, nn.LayerNorm)
"""Layers whose bias has the last axes of the output; that of all others has the second."""


def biases(call: ModuleCall) -> list[Rows]:
    """The bias alone: output gradients summed over positions, whatever the inputs were (Bu et al.
    2024, "Differentially private bias-term fine-tuning of foundation models")."""
    return [Rows(call.over_views(_over_positions(call.module, call.b)))]


def _over_positions(module: nn.Module, b: Tensor) -> Tensor:
    """Output gradients b [B K, ...] summed over positions [B K, d]."""
    if isinstance(module, LAST):
        return b.reshape(len(b), -1, module.bias.numel()).sum(1)
    return over_image(b)
