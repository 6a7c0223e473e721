"""Which module has which rule."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from dpbench.gradients.layers.convolution import convolution, moved_convolution
from dpbench.gradients.layers.layer import LayerGradient, Seen
from dpbench.gradients.layers.lookup import embedding, moved_embedding
from dpbench.gradients.layers.outer import linear, moved_linear
from dpbench.gradients.layers.rows import (
    anything,
    moved_anything,
    moved_normalisation,
    normalisation,
)
from dpbench.gradients.layers.standardised import moved_standardised, standardised
from dpbench.models.standardised import StandardisedConv2d


class Rule(NamedTuple):
    """What is known of a kind of module.

    gradients: of what it saw, one entry per layer in it. moved: its outputs for inputs x [B K, ...]
    with its parameters moved by scales_i g_i, those gradients scaled [B].
    """

    gradients: Callable[[Seen], Sequence[LayerGradient]]
    moved: Callable[[Seen, list[Any], Tensor, Tensor], Tensor]


NORMALISATION = Rule(normalisation, moved_normalisation)
CONVOLUTION = Rule(convolution, moved_convolution)

RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: Rule(linear, moved_linear),
    nn.Conv1d: CONVOLUTION,
    nn.Conv2d: CONVOLUTION,
    StandardisedConv2d: Rule(standardised, moved_standardised),
    nn.GroupNorm: NORMALISATION,
    nn.InstanceNorm1d: NORMALISATION,
    nn.InstanceNorm2d: NORMALISATION,
    nn.InstanceNorm3d: NORMALISATION,
    nn.LayerNorm: NORMALISATION,
    nn.RMSNorm: NORMALISATION,
    nn.Embedding: Rule(embedding, moved_embedding),
}
"""Modules whose per-example gradients are known in closed form, by their exact type."""

FALLBACK = Rule(anything, moved_anything)
"""The rule of every other module."""
