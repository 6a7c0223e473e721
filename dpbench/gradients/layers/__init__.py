"""Per-example gradient norms and weighted sums in closed form, by module type."""

from dpbench.gradients.layers.layer import LayerGradient, ModuleCall, Perturbation
from dpbench.gradients.layers.rules import FALLBACK, RULES, LayerRule

__all__ = ["FALLBACK", "RULES", "LayerGradient", "LayerRule", "ModuleCall", "Perturbation"]
