"""Per-example gradient norms and weighted sums in closed form, by module type."""

from dpbench.step.gradients.layers.layer import LayerGradient, ModuleCall, Perturbation
from dpbench.step.gradients.layers.rules import FALLBACK, LayerRule, rule_of

__all__ = ["FALLBACK", "LayerGradient", "LayerRule", "ModuleCall", "Perturbation", "rule_of"]
