"""How each kind of module turns what it saw into per-example gradient norms and sums."""

from dpbench.gradients.layers.layer import LayerGradient, Seen
from dpbench.gradients.layers.rules import FALLBACK, RULES, Rule

__all__ = ["FALLBACK", "RULES", "LayerGradient", "Rule", "Seen"]
