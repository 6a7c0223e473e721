"""Whether each example's row stays its own on the way through a model."""

from dpbench.step.gradients.rows.check import RowCheck, graph_of, same_draws

__all__ = ["RowCheck", "graph_of", "same_draws"]
