"""What the page knows of metrics: their names in words, their unit, which way is better."""

from typing import NamedTuple


class Metric(NamedTuple):
    """A metric in words. percent: a fraction, shown as percent; better: None where unknown."""

    label: str
    percent: bool
    better: str | None


KNOWN = {
    "accuracy": Metric("accuracy", True, "higher"),
    "loss": Metric("loss", False, "lower"),
    "nll": Metric("negative log-likelihood", False, "lower"),
    "ece": Metric("ECE", True, "lower"),
    "mce": Metric("MCE", True, "lower"),
    "mce_min20": Metric("MCE of bins of 20 and more", True, "lower"),
    "mce_last10": Metric("MCE, median of the last ten epochs", True, "lower"),
    "adaptive_ece": Metric("adaptive ECE", True, "lower"),
    "ece_temperature": Metric("ECE after a temperature", True, "lower"),
    "brier": Metric("Brier score", False, "lower"),
    "accuracy_gap": Metric("accuracy gap between groups", True, "lower"),
    "demographic_parity_difference": Metric("demographic parity difference", True, "lower"),
    "equalized_odds_difference": Metric("equalised odds difference", True, "lower"),
    "mse": Metric("mean squared error", False, "lower"),
    "rmse": Metric("root mean squared error", False, "lower"),
    "mae": Metric("mean absolute error", False, "lower"),
    "r2": Metric("R²", False, "higher"),
}
CALIBRATION = ("ece", "mce", "mce_min20", "mce_last10", "adaptive_ece", "ece_temperature", "brier")
FAIRNESS = ("accuracy_gap", "demographic_parity_difference", "equalized_odds_difference")


def described(name: str) -> dict:
    """A metric `split/name` or `split/name/group`, as the page takes it.

    kind: "calibration", "fairness", "group" (of one group of examples) or "utility".
    """
    split, _, rest = name.partition("/")
    base, _, group = rest.partition("/")
    metric = KNOWN.get(base, Metric(base or name, False, None))
    where = "" if split == "test" else f" ({split})"
    return {
        "name": name,
        "label": metric.label + where,
        "percent": metric.percent,
        "better": metric.better,
        "kind": "group" if group else _kind(base),
        "base": f"{split}/{base}",
        "group": group,
    }


def _kind(base: str) -> str:
    if base in CALIBRATION:
        return "calibration"
    return "fairness" if base in FAIRNESS else "utility"


def ordered(names: set[str]) -> list[str]:
    """Test before validation, in the order above, unknown ones last."""
    known = list(KNOWN)

    def place(name: str) -> tuple:
        split, _, rest = name.partition("/")
        base = rest.partition("/")[0]
        return split != "test", known.index(base) if base in KNOWN else len(known), name

    return sorted(names, key=place)
