"""The registry of metrics: label, unit, digits, direction, and the difference that matters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]
Kind = Literal["utility", "calibration", "fairness", "privacy", "cost"]
NOISY_ACCURACY = "validation/noisy_accuracy"
"""The metric that private searches select by: the only one on validation that epsilon covers."""

WORST = "worst_group_accuracy"
FACTORS = {"percent": 100, "nats": 1, "": 1}
"""Factors from recorded values to a unit: records contain fractions."""


def sign_of(better: Better | None) -> int:
    """1 for "higher", -1 for "lower"; ValueError where no direction is better."""
    if better is None:
        raise ValueError("neither direction is better")
    return 1 if better == "higher" else -1


@dataclass(frozen=True)
class Margin:
    """The largest difference of a metric that does not matter: absolute, and a share of its value.

    absolute: in the unit in which it is shown; relative: a fraction.
    """

    absolute: float = 0.0
    relative: float = 0.0

    def __str__(self) -> str:
        """`0.5`, or `2 %`."""
        return f"{100 * self.relative:g} %" if self.relative else f"{self.absolute:g}"

    def in_records(self, factor: float) -> "Margin":
        """The margin in the unit of the records, of which a factor makes that which is shown."""
        return Margin(self.absolute / factor, self.relative)

    def at(self, value: float) -> float:
        """The margin around a value, in its unit."""
        return self.absolute + self.relative * abs(value)


OTHER_MARGIN = Margin(relative=0.05)
"""Of metrics and series that state no margin of their own."""


@dataclass(frozen=True)
class Metric:
    """How a metric is shown, and the differences of it that matter.

    digits: decimals in its unit; None if they depend on the data. better: the better direction;
    None if there is none. margin: what a reader would not choose a method for.
    """

    label: str
    unit: Literal["percent", "nats", ""]
    digits: int | None
    better: Better | None
    kind: Kind = "utility"
    margin: Margin = OTHER_MARGIN

    @property
    def factor(self) -> int:
        """100 for a fraction shown in percent, else 1."""
        return FACTORS[self.unit]

    @property
    def sign(self) -> int:
        """1 if a larger value is better, -1 if a smaller one is; ValueError if neither is."""
        return sign_of(self.better)


def _accuracy(label: str) -> Metric:
    return Metric(label, "percent", 1, "higher", margin=Margin(0.5))


def _loss(label: str, digits: int) -> Metric:
    return Metric(label, "nats", digits, "lower", margin=Margin(relative=0.02))


def _calibration(label: str, margin: float = 0.5) -> Metric:
    return Metric(label, "percent", 1, "lower", "calibration", Margin(margin))


def _fairness(label: str) -> Metric:
    return Metric(label, "percent", 1, "lower", "fairness", Margin(1.0))


def _attack(label: str) -> Metric:
    return Metric(label, "percent", 2, "lower", "privacy")


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
