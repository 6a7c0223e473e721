"""Pure functions from what a model put out to numbers in a table."""

from dpbench.metrics.evaluation import evaluate, fit
from dpbench.metrics.regression import evaluate_regression, fit_regression

__all__ = ["FIT", "METRICS", "evaluate", "evaluate_regression", "fit", "fit_regression"]

METRICS = {"classification": evaluate, "regression": evaluate_regression}
"""All metrics of a data set's task."""

FIT = {"classification": fit, "regression": fit_regression}
"""Those that say how well a model fits its training examples."""
