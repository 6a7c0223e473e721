"""The registry of metrics: label, unit, digits and which direction is better."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]
Kind = Literal["utility", "calibration", "fairness"]
NOISY_ACCURACY = "validation/noisy_accuracy"
"""The metric that private searches select by: the only one on validation that epsilon covers."""

FACTORS = {"percent": 100, "nats": 1, "": 1}
"""Factors from recorded values to a unit: records contain fractions."""


def sign_of(better: Better | None) -> int:
    """1 for "higher", -1 for "lower"; ValueError where no direction is better."""
    if better is None:
        raise ValueError("neither direction is better")
    return 1 if better == "higher" else -1


@dataclass(frozen=True)
class Metric:
    """How a metric is shown.

    digits: decimals in its unit; None if they depend on the data. better: the better direction;
    None if there is none.
    """

    label: str
    unit: Literal["percent", "nats", ""]
    digits: int | None
    better: Better | None
    kind: Kind = "utility"

    @property
    def factor(self) -> int:
        """100 for a fraction shown in percent, else 1."""
        return FACTORS[self.unit]

    @property
    def sign(self) -> int:
        """1 if a larger value is better, -1 if a smaller one is; ValueError if neither is."""
        return sign_of(self.better)


def _calibration(label: str) -> Metric:
    return Metric(label, "percent", 1, "lower", "calibration")


def _fairness(label: str) -> Metric:
    return Metric(label, "percent", 1, "lower", "fairness")


REGISTRY: Mapping[str, Metric] = {
    "accuracy": Metric("accuracy", "percent", 1, "higher"),
    "noisy_accuracy": Metric("accuracy, with noise", "percent", 1, "higher"),
    "loss": Metric("loss", "nats", 3, "lower"),
    "nll": Metric("negative log-likelihood", "nats", 2, "lower"),
    "nll_unscaled": Metric("NLL before the private temperature", "nats", 2, "lower"),
    "accuracy_unscaled": Metric("accuracy before the private temperature", "percent", 1, "higher"),
    "ece": _calibration("ECE"),
    "mce": _calibration("MCE"),
    "mce_min20": _calibration("MCE of bins of 20 and more"),
    "mce_last10": _calibration("MCE, median of the last ten epochs"),
    "adaptive_ece": _calibration("adaptive ECE"),
    "ece_temperature": _calibration("ECE after a temperature"),
    "ece_unscaled": _calibration("ECE before the private temperature"),
    "mce_unscaled": _calibration("MCE before the private temperature"),
    "brier": Metric("Brier score", "", 3, "lower", "calibration"),
    "temperature": Metric("private temperature", "", 2, None),
    "bias": Metric("private bias", "", 2, None),
    "worst_group_accuracy": Metric(
        "accuracy of the worst group", "percent", 1, "higher", "fairness"
    ),
    "accuracy_gap": _fairness("accuracy gap between groups"),
    "demographic_parity_difference": _fairness("demographic parity difference"),
    "equalized_odds_difference": _fairness("equalised odds difference"),
    "mse": Metric("mean squared error", "", None, "lower"),
    "rmse": Metric("root mean squared error", "", None, "lower"),
    "mae": Metric("mean absolute error", "", None, "lower"),
    "r2": Metric("R²", "", None, "higher"),
    "privacy_cost": _fairness("privacy cost"),
    "privacy_cost_gap": _fairness("privacy cost gap"),
    "excessive_risk": Metric("excessive risk", "nats", 3, "lower", "fairness"),
    "excessive_risk_gap": Metric("excessive risk gap", "nats", 3, "lower", "fairness"),
}
"""In display order."""


@dataclass(frozen=True)
class MetricName:
    """The parts of `split/base/group`; split or group is "" if absent."""

    split: str
    base: str
    group: str

    @property
    def metric(self) -> Metric | None:
        """The metric in the registry; None if it is unknown."""
        return REGISTRY.get(self.base)


def parse_name(name: str) -> MetricName:
    """Parses a name; metrics that compare two runs (`privacy_cost/<group>`) have no split."""
    first, _, rest = name.partition("/")
    if first in REGISTRY:
        return MetricName("", first, rest)
    base, _, group = rest.partition("/")
    return MetricName(first, base, group)
