"""Metrics of classes. Balanced accuracy, macro F1 and AUROC equal scikit-learn's, and are NaN where
a class has no example or an output is not finite."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dpbench.learning.metrics.classification import mean, negative_log_likelihood
from dpbench.learning.metrics.metric import Margin, Metric

if TYPE_CHECKING:
    from torch import Tensor


def nll(outputs: "Tensor", targets: "Tensor", groups: "Tensor") -> float:
    """The mean negative log-likelihood in nats."""
    return mean(negative_log_likelihood(outputs, targets))


def balanced_accuracy(outputs: "Tensor", targets: "Tensor", groups: "Tensor") -> float:
    """The mean of the classes' recalls."""
    hits, _, sizes = _counts(outputs, targets)
    return mean(hits / sizes)


def f1_macro(outputs: "Tensor", targets: "Tensor", groups: "Tensor") -> float:
    """The mean of the classes' F1 scores."""
    hits, predicted, sizes = _counts(outputs, targets)
    return mean(2 * hits / (sizes + predicted))


def auroc(outputs: "Tensor", targets: "Tensor", groups: "Tensor") -> float:
    """The mean area under the curves of each class against the rest by its probability, which for
    two classes is the one area."""
    _, _, sizes = _counts(outputs, targets)
    if sizes.isnan().any():
        return math.nan
    scores = outputs.double().softmax(dim=1)
    return sum(_area(scores[:, k], targets == k) for k in range(len(sizes))) / len(sizes)


def _counts(outputs: "Tensor", targets: "Tensor") -> "tuple[Tensor, Tensor, Tensor]":
    """Of each class [K] float64: right predictions, predictions, and examples; those are NaN where
    a class has none or an output is not finite."""
    count, predictions = outputs.shape[1], outputs.argmax(dim=1)
    hits = targets[predictions == targets].bincount(minlength=count).double()
    predicted = predictions.bincount(minlength=count).double()
    sizes = targets.bincount(minlength=count).double()
    valid = outputs.isfinite().all() and sizes.all()
    return hits, predicted, sizes if valid else sizes * math.nan


def _area(scores: "Tensor", positive: "Tensor") -> float:
    """The share of pairs in which the positive example has the higher score [n]; ties are halves
    (Mann and Whitney 1947)."""
    _, places, counts = scores.unique(return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1) / 2).double()
    ours = int(positive.sum())
    above = ranks[places[positive]].sum().item() - ours * (ours + 1) / 2
    return above / (ours * (len(scores) - ours))


NLL = Metric(
    "negative log-likelihood", "nats", 2, "lower", margin=Margin(relative=0.02), compute=nll
)
F1_MACRO = Metric("macro F1", "percent", 1, "higher", margin=Margin(0.5), compute=f1_macro)
BALANCED_ACCURACY = replace(F1_MACRO, label="balanced accuracy", compute=balanced_accuracy)
AUROC = replace(F1_MACRO, label="AUROC", compute=auroc)
