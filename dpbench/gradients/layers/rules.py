"""Which module has which rule."""

from collections.abc import Callable

from torch import nn

from dpbench.gradients.layers.convolution import convolution
from dpbench.gradients.layers.layer import LayerGradient, Seen
from dpbench.gradients.layers.lookup import embedding
from dpbench.gradients.layers.outer import linear
from dpbench.gradients.layers.rows import (
    anything,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)
from dpbench.gradients.layers.standardised import standardised
from dpbench.models.standardised import StandardisedConv2d

Rule = Callable[[Seen], LayerGradient]

RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    StandardisedConv2d: standardised,
    nn.GroupNorm: group_norm,
    nn.InstanceNorm1d: instance_norm,
    nn.InstanceNorm2d: instance_norm,
    nn.InstanceNorm3d: instance_norm,
    nn.LayerNorm: layer_norm,
    nn.RMSNorm: rms_norm,
    nn.Embedding: embedding,
}
"""Modules whose per-example gradients are known in closed form, by their exact type."""

fallback = anything
"""The rule of every other module."""
