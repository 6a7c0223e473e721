"""All metrics of one model on one split."""

from collections.abc import Sequence

from torch import Tensor

from dpbench.learning.metrics import calibration, classification, fairness, temperature


def evaluate(
    outputs: Tensor, losses: Tensor, targets: Tensor, groups: Tensor, group_names: Sequence[str]
) -> dict[str, float]:
    """Every metric over all n examples of a split, under flat names.

    outputs: logits [n, K]; losses: the training loss of each example [n], which need not be the
    negative log-likelihood of the outputs; targets [n] and groups [n]: int64.

    docs/records.md says what each is. Accuracies are fractions, losses nats. An empty group or a
    diverged model gives NaN. Raises ValueError if the shapes disagree or a group has no name.
    """
    outputs, losses, targets, groups = (
        t.detach().cpu() for t in (outputs, losses, targets, groups)
    )
    classification.check_shapes(outputs, (losses, targets), groups, group_names)
    fit = fit_metrics(outputs, losses, targets, groups, group_names)
    return {
        **fit,
        "nll": classification.mean(classification.negative_log_likelihood(outputs, targets)),
        "brier": classification.mean(calibration.brier(outputs, targets)),
        "ece": calibration.expected_calibration_error(outputs, targets),
        "mce": calibration.maximum_calibration_error(outputs, targets),
        "mce_min20": calibration.maximum_calibration_error(outputs, targets, least=20),
        "adaptive_ece": calibration.adaptive_calibration_error(outputs, targets),
        "ece_temperature": temperature.effect_of_scaling(outputs, targets).ece,
        **classification.class_metrics(outputs, targets),
        "accuracy_gap": classification.spread(fit[f"accuracy/{name}"] for name in group_names),
        **fairness.group_fairness(outputs, targets, groups, len(group_names)),
    }


def fit_metrics(
    outputs: Tensor, losses: Tensor, targets: Tensor, groups: Tensor, group_names: Sequence[str]
) -> dict[str, float]:
    """The fit to a split: accuracy and loss, over all examples and per group.

    Arguments as for `evaluate`, whose other metrics only make sense on held-out examples.
    """
    outputs, losses, targets, groups = (
        t.detach().cpu() for t in (outputs, losses, targets, groups)
    )
    correct = classification.correct(outputs, targets)
    accuracies = classification.mean_per_group(correct, groups, group_names)
    group_losses = classification.mean_per_group(losses, groups, group_names)
    return {
        "accuracy": classification.mean(correct),
        "loss": classification.mean(losses),
        **{f"accuracy/{name}": value for name, value in accuracies.items()},
        **{f"loss/{name}": value for name, value in group_losses.items()},
    }
