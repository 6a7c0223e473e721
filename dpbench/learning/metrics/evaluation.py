"""All metrics of one model on one split: the fit, the gaps between groups, and every `Metric` that
computes itself."""

import math
import warnings
from collections.abc import Sequence
from importlib.metadata import entry_points

from torch import Tensor

from dpbench.learning.metrics.classification import correct, group_fairness, mean, spread
from dpbench.learning.metrics.metric import Metric
from dpbench.learning.metrics.registry import GROUP, added_metrics, computed
from dpbench.system.errors import first_line


def evaluate(
    task: str,
    outputs: Tensor,
    losses: Tensor,
    targets: Tensor,
    groups: Tensor,
    group_names: Sequence[str],
    held_out: bool = True,
) -> dict[str, float]:
    """Every metric over all n examples of a split, under flat names.

    outputs [n, K]: logits, or for regression numbers [n, 1] in the unit of the targets; losses: the
    training loss of each example [n], which need not be the negative log-likelihood of the outputs;
    targets [n] and groups [n]: int64, or numbers as targets of regression. held_out: False for the
    fit alone, loss and accuracy, as other metrics make no sense on training examples.

    docs/records.md says what each is. Accuracies are fractions, losses nats. An empty group or a
    diverged model gives NaN; so does a metric that fails, with a warning, since it must not cost a
    training of hours. Raises ValueError if the shapes disagree or a group has no name.
    """
    outputs, losses, targets, groups = (
        t.detach().cpu() for t in (outputs, losses, targets, groups)
    )
    classes = task == "classification"
    _check_shapes(outputs, (losses, targets, groups), len(group_names), None if classes else 1)
    columns = {"accuracy": correct(outputs, targets)} if classes else {}
    columns["loss"] = losses
    measured = {name: mean(values) for name, values in columns.items()}
    for number, group in enumerate(group_names):
        members = groups == number
        measured |= {f"{name}/{group}": mean(values[members]) for name, values in columns.items()}
    if not held_out:
        return measured
    if classes:
        measured["accuracy_gap"] = spread([measured[f"accuracy/{name}"] for name in group_names])
        measured |= group_fairness(outputs, targets, groups, len(group_names))
    return measured | {
        name: _value(name, metric, outputs, targets, groups)
        for name, metric in computed(task).items()
    }


def _check_shapes(
    outputs: Tensor, columns: Sequence[Tensor], names: int, width: int | None
) -> None:
    """ValueError unless outputs are [n, K], columns [n], the last of which are numbers of groups
    that have names. width: the required K; None for any."""
    n, groups = len(outputs), columns[-1]
    shapes = [tuple(column.shape) for column in columns]
    if outputs.dim() != 2 or width not in (None, outputs.shape[1]) or set(shapes) != {(n,)}:
        expected = f"[n, {width or 'K'}], [n]"
        raise ValueError(f"outputs are {tuple(outputs.shape)}, the rest {shapes}, not {expected}.")
    if n and not 0 <= int(groups.min()) <= int(groups.max()) < names:
        raise ValueError(f"a group number is outside the {names} named groups.")


def _value(name: str, metric: Metric, *given: Tensor) -> float:
    """The value of a metric, which has copies that it may change."""
    assert metric.compute is not None
    try:
        return float(metric.compute(*(tensor.clone() for tensor in given)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        warnings.warn(f"the metric {name} failed, so it is NaN: {reason}.", stacklevel=2)
        return math.nan


def packages_of_metrics() -> dict[str, str]:
    """The package and version that each metric of a plug-in is of, by the metric's name."""
    dists = {entry.name: entry.dist for entry in entry_points(group=GROUP)}
    return {
        name: f"{dist.name} {dist.version}" for name in added_metrics() if (dist := dists[name])
    }
