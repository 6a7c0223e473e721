"""All metrics by name: ours, and those of plug-ins."""

import functools
import re
import sys
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, entry_points

from dpbench.learning.metrics.metric import OTHER_MARGIN, Margin, Metric
from dpbench.system.errors import first_line
from dpbench.system.validate import fits, in_words, quoted

GROUP = "dpbench.metrics"
"""Entry points of plug-ins: NAME = "package.module:METRIC"."""

NOISY_ACCURACY = "validation/noisy_accuracy"
"""The metric that private searches select by: the only one on validation that epsilon covers."""

WORST = "worst_group_accuracy"


def _accuracy(label: str) -> Metric:
    return Metric(label, "percent", 1, "higher", margin=Margin(0.5))


def _loss(label: str, digits: int) -> Metric:
    return Metric(label, "nats", digits, "lower", margin=Margin(relative=0.02))


def _calibration(label: str, margin: float = 0.5) -> Metric:
    return Metric(label, "percent", 1, "lower", "calibration", Margin(margin))


def _fairness(label: str) -> Metric:
    return Metric(label, "percent", 1, "lower", "fairness", Margin(1.0))


def _attack(label: str) -> Metric:
    return Metric(label, "percent", 2, "lower", "privacy", is_bound=True)


REGISTRY: Mapping[str, Metric] = {
    "accuracy": _accuracy("accuracy"),
    "noisy_accuracy": _accuracy("accuracy, with noise"),
    "loss": _loss("loss", 3),
    "nll": _loss("negative log-likelihood", 2),
    "nll_unscaled": _loss("NLL before the private temperature", 2),
    "accuracy_unscaled": _accuracy("accuracy before the private temperature"),
    "ece": _calibration("ECE"),
    "mce": _calibration("MCE", 2.0),
    "mce_min20": _calibration("MCE of bins of 20 and more", 2.0),
    "mce_last10": _calibration("MCE, median of the last ten epochs", 2.0),
    "adaptive_ece": _calibration("adaptive ECE"),
    "ece_temperature": _calibration("ECE after a temperature"),
    "ece_unscaled": _calibration("ECE before the private temperature"),
    "mce_unscaled": _calibration("MCE before the private temperature", 2.0),
    "brier": Metric("Brier score", "", 3, "lower", "calibration"),
    "temperature": Metric("private temperature", "", 2, None),
    "bias": Metric("private bias", "", 2, None),
    "balanced_accuracy": _accuracy("balanced accuracy"),
    "f1_macro": _accuracy("macro F1"),
    "auroc": _accuracy("AUROC"),
    WORST: Metric("accuracy of the worst group", "percent", 1, "higher", "fairness", Margin(1.0)),
    "accuracy_gap": _fairness("accuracy gap between groups"),
    "demographic_parity_difference": _fairness("demographic parity difference"),
    "equalized_odds_difference": _fairness("equalised odds difference"),
    "membership_advantage": _attack("membership advantage, at most"),
    "true_positive_rate": _attack("true positives at 0.1% false ones, at most"),
    "reconstruction": _attack("reconstruction, at most"),
    "seconds": Metric("seconds", "", 1, "lower", "cost"),
    "mse": Metric("mean squared error", "", None, "lower"),
    "rmse": Metric("root mean squared error", "", None, "lower"),
    "mae": Metric("mean absolute error", "", None, "lower"),
    "r2": Metric("R²", "", None, "higher", margin=Margin(0.01)),
    "privacy_cost": _fairness("privacy cost"),
    "privacy_cost_gap": _fairness("privacy cost gap"),
    "excessive_risk": Metric("excessive risk", "nats", 3, "lower", "fairness", Margin(0.01)),
    "excessive_risk_gap": Metric(
        "excessive risk gap", "nats", 3, "lower", "fairness", Margin(0.01)
    ),
}
"""Ours, in display order."""

RANKED_BY = ("accuracy", "r2", "rmse", "mse", "mae", "loss")
"""Methods are ranked by the first of these metrics that was measured."""

OFFERED = (
    *RANKED_BY,
    *("balanced_accuracy", "f1_macro", "auroc", "nll", "ece", WORST),
    *("accuracy_gap", "demographic_parity_difference", "equalized_odds_difference"),
)
"""Metrics that methods may be compared by in the report, beside those of plug-ins."""


def metrics() -> Mapping[str, Metric]:
    """All by name: ours, then those of plug-ins."""
    return {**REGISTRY, **added_metrics()}


def added_metrics() -> Mapping[str, Metric]:
    """The metrics of packages on Python's path; a warning for each that cannot be used."""
    return _added(tuple(sys.path))


@functools.cache
def _added(path: tuple[str, ...]) -> Mapping[str, Metric]:
    found = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        metric = _loaded(entry)
        if isinstance(metric, Metric):
            found[entry.name] = metric
        else:
            warnings.warn(f"the metric {entry.name} is ignored: {metric}.", stacklevel=2)
    return found


def _loaded(entry: EntryPoint) -> Metric | str:
    """The metric of an entry point, or why there is none."""
    if entry.name in REGISTRY:
        return "dpbench has one of this name"
    if not re.fullmatch(r"[a-z]\w*", entry.name):
        return "its name must be a small letter, then letters, digits and _"
    try:
        with redirect_stdout(sys.stderr):
            metric = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"{entry.value} cannot be imported: {type(error).__name__}: {first_line(error)}"
    if not isinstance(metric, Metric) or not callable(metric.compute):
        return f"{entry.value} is not a Metric with a function to compute it"
    for field in fields(metric):
        value = getattr(metric, field.name)
        if field.name != "compute" and not fits(value, field.type):
            return f"its {field.name} must be {in_words(field.type)}, and is {quoted(value)}"
    return metric


@dataclass(frozen=True)
class MetricName:
    """The parts of `split/base/group`; split or group is "" if absent."""

    split: str
    base: str
    group: str

    @property
    def metric(self) -> Metric | None:
        """The metric in the registry; None if it is unknown."""
        return REGISTRY.get(self.base) or added_metrics().get(self.base)

    @property
    def margin(self) -> Margin:
        """The metric's margin, of a group twice that of all examples where it is an accuracy;
        a share of the value for a metric that is unknown."""
        if self.group and self.base == "accuracy":
            return REGISTRY[WORST].margin
        return self.metric.margin if self.metric else OTHER_MARGIN


def parse_name(name: str) -> MetricName:
    """Parses a name; metrics that compare two runs (`privacy_cost/<group>`) have no split."""
    first, _, rest = name.partition("/")
    if first in REGISTRY:
        return MetricName("", first, rest)
    base, _, group = rest.partition("/")
    return MetricName(first, base, group)
