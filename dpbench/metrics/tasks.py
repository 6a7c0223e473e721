"""The metrics of each task."""

from dpbench.metrics.evaluation import evaluate, fit
from dpbench.metrics.regression import evaluate_regression, fit_regression

METRICS = {"classification": evaluate, "regression": evaluate_regression}
"""By task: all metrics of a held-out split."""

FIT = {"classification": fit, "regression": fit_regression}
"""By task: the metrics of the fit to training examples."""
