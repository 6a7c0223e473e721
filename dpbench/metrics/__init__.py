"""Pure functions from what a model put out to numbers in a table."""

from dpbench.metrics.evaluation import evaluate
from dpbench.metrics.regression import evaluate_regression

__all__ = ["METRICS", "evaluate", "evaluate_regression"]

METRICS = {"classification": evaluate, "regression": evaluate_regression}
"""All metrics of a data set's task."""
