"""How each kind of module turns what it saw into per-example gradient norms and sums."""

from dpbench.gradients.layers.layer import LayerGradient, Seen
from dpbench.gradients.layers.rules import RULES, fallback

__all__ = ["RULES", "LayerGradient", "Seen", "fallback"]
