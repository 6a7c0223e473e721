"""The per-example gradient rule of each module type."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from dpbench.learning.models.standardised import StandardisedConv2d
from dpbench.step.gradients.layers.convolution import convolution, perturbed_convolution
from dpbench.step.gradients.layers.layer import LayerGradient, ModuleCall, Perturbation
from dpbench.step.gradients.layers.lookup import embedding, perturbed_embedding
from dpbench.step.gradients.layers.materialised import (
    biases,
    fallback,
    normalisation,
    perturbed_fallback,
    perturbed_normalisation,
)
from dpbench.step.gradients.layers.outer import linear, perturbed_linear
from dpbench.step.gradients.layers.standardised import perturbed_standardised, standardised


class LayerRule(NamedTuple):
    """How a module type computes per-example gradients.

    gradients: those of a call, one entry per layer. perturbed_outputs: the outputs for inputs x
    [B K, ...] with the parameters of a perturbation. reads_inputs: whether the gradients depend on
    the inputs of the call, which are else not kept. multiplied: whether they are sums of products
    of inputs and adjoints. materialised: whether both are needed no longer once they are computed.
    """

    gradients: Callable[[ModuleCall], Sequence[LayerGradient]]
    perturbed_outputs: Callable[[Perturbation, Tensor], Tensor]
    reads_inputs: bool = True
    multiplied: bool = False
    materialised: bool = False


NORMALISATION = LayerRule(normalisation, perturbed_normalisation, materialised=True)
CONVOLUTION = LayerRule(convolution, perturbed_convolution, multiplied=True)

RULES: dict[type[nn.Module], LayerRule] = {
    nn.Linear: LayerRule(linear, perturbed_linear, multiplied=True),
    nn.Conv1d: CONVOLUTION,
    nn.Conv2d: CONVOLUTION,
    StandardisedConv2d: LayerRule(standardised, perturbed_standardised, multiplied=True),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), NORMALISATION),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), NORMALISATION),
    **dict.fromkeys((nn.GroupNorm, nn.LayerNorm, nn.RMSNorm), NORMALISATION),
    nn.Embedding: LayerRule(embedding, perturbed_embedding),
}
"""Rules by exact type: a subclass may compute something else."""

BIASES = LayerRule(biases, perturbed_fallback, reads_inputs=False, materialised=True)
"""The rule of a type in RULES if all parameters but its bias are frozen."""

FALLBACK = LayerRule(fallback, perturbed_fallback)
"""The rule of every other module."""


def rule_of(module: nn.Module) -> LayerRule | None:
    """The rule in closed form for a module, given what is frozen in it; None without one."""
    if type(module) not in RULES:
        return None
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    if len(trained) == len([*module.parameters()]):
        return RULES[type(module)]
    return BIASES if trained == ["bias"] else None
