"""Pure functions from what a model put out to numbers in a table."""

from dpbench.metrics.evaluation import evaluate

__all__ = ["evaluate"]
