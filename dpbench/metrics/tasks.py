"""The metrics of each task."""

from dpbench.metrics.evaluation import evaluate, fit_metrics
from dpbench.metrics.regression import evaluate_regression, regression_fit_metrics

METRICS = {"classification": evaluate, "regression": evaluate_regression}
"""The metrics of a held-out split, by task."""

FIT = {"classification": fit_metrics, "regression": regression_fit_metrics}
"""The metrics of the fit to training examples, by task."""
