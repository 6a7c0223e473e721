"""Whether the metrics of a record agree with each other and with its reliability diagram."""

import math
from collections.abc import Iterator

import numpy as np

from dpbench.learning.metrics.calibration import Bins, expected, maximum
from dpbench.learning.metrics.classification import spread
from dpbench.runs.records.record import Record

ROUNDING = 1e-6
"""By how much a metric may differ from what the rest of a record gives."""


def wrong_metrics(record: Record) -> Iterator[str]:
    """The metrics that the rest of a record contradicts, as predicates of a sentence.

    A change of the accuracy alone is found. Losses and scores follow from nothing in a record.
    """
    split = "validation" if record.config.get("validation") else "test"
    metrics = {
        name.removeprefix(f"{split}/"): value
        for name, value in record.metrics.items()
        if name.startswith(f"{split}/")
    }
    for name, value in (_by_groups(metrics) | _by_bins(record)).items():
        if name in metrics and not _near(metrics[name], value):
            yield f"has {split}/{name}={metrics[name]}, but the rest of it gives {value}."
    accuracy, groups = metrics.get("accuracy", math.nan), _of_groups(metrics)
    if groups and (accuracy < min(groups) - ROUNDING or accuracy > max(groups) + ROUNDING):
        yield f"has {split}/accuracy={accuracy}, which no mean of its groups can be."


def _by_groups(metrics: dict[str, float]) -> dict[str, float]:
    groups = _of_groups(metrics)
    return {"accuracy_gap": spread(groups)} if groups else {}


def _of_groups(metrics: dict[str, float]) -> list[float]:
    """The accuracies of all groups; empty if one has no examples."""
    groups = [value for name, value in metrics.items() if name.startswith("accuracy/")]
    return [] if any(map(math.isnan, groups)) else groups


@np.errstate(all="ignore")  # a record may say that a confidence is infinite
def _by_bins(record: Record) -> dict[str, float]:
    """The metrics that the counts behind the reliability diagram give; empty without these."""
    columns = record.calibration.get("bins", {"count": []})
    counts = np.array(columns["count"])
    if not counts.any():
        return {}
    means = (np.nan_to_num(columns[name]) for name in ("confidence", "accuracy"))
    bins = Bins(counts, *(counts * mean for mean in means))
    return {
        "accuracy": float(bins.correct.sum() / counts.sum()),
        "ece": expected(bins),
        "mce": maximum(bins),
        "mce_min20": maximum(bins, least=20),
    }


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= ROUNDING or (math.isnan(one) and math.isnan(other))
