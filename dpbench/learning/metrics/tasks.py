"""The metrics of each task, ours and those of plug-ins."""

import math
import warnings
from importlib.metadata import entry_points

from torch import Tensor

from dpbench.learning.metrics.evaluation import evaluate, fit_metrics
from dpbench.learning.metrics.metric import Metric
from dpbench.learning.metrics.registry import GROUP, added_metrics
from dpbench.learning.metrics.regression import evaluate_regression, regression_fit_metrics
from dpbench.system.errors import first_line

METRICS = {"classification": evaluate, "regression": evaluate_regression}
"""Our metrics of a held-out split, by task."""

FIT = {"classification": fit_metrics, "regression": regression_fit_metrics}
"""The metrics of the fit to training examples, by task."""


def measured_by_plugins(
    task: str, outputs: Tensor, targets: Tensor, groups: Tensor
) -> dict[str, float]:
    """The plug-ins' metrics of a held-out split; NaN, with a warning, for one that fails.

    outputs [n, K], targets [n], groups [n]. Each metric has copies, which it may change.
    """
    given = tuple(tensor.detach().cpu() for tensor in (outputs, targets, groups))
    of_task = {name: metric for name, metric in added_metrics().items() if metric.task == task}
    return {name: _value(name, metric, given) for name, metric in of_task.items()}


def _value(name: str, metric: Metric, given: tuple[Tensor, ...]) -> float:
    assert metric.compute is not None
    try:
        return float(metric.compute(*(tensor.clone() for tensor in given)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # which must not cost a training of hours
        reason = f"{type(error).__name__}: {first_line(error)}"
        warnings.warn(f"the metric {name} failed, so it is NaN: {reason}.", stacklevel=2)
        return math.nan


def packages_of_metrics() -> dict[str, str]:
    """The package and version that each metric of a plug-in is of, by the metric's name."""
    dists = {entry.name: entry.dist for entry in entry_points(group=GROUP)}
    return {
        name: f"{dist.name} {dist.version}" for name in added_metrics() if (dist := dists[name])
    }
