"""The metrics of the page: their labels, units, and which way is better."""

from dpbench.learning.metrics.metric import Better
from dpbench.learning.metrics.registry import MetricName, metrics, parse_name

FIRST_SPLIT = "test"


def metric_entry(name: str) -> dict:
    """A metric `split/name` or `split/name/group` as the page's JSON.

    kind: "calibration", "fairness", "group" (of one group of examples) or "utility". title: the
    label with the group.
    """
    parts = parse_name(name)
    metric = parts.metric
    label = _label(parts)
    return {
        "name": name,
        "label": label,
        "title": f"{label}: {parts.group}" if parts.group else label,
        "percent": metric.unit == "percent",
        "better": metric.better,
        "kind": "group" if parts.group else metric.kind,
    }


def _label(parts: MetricName) -> str:
    label = parts.metric.label
    return label if parts.split in ("", FIRST_SPLIT) else f"{label} ({parts.split})"


def arrowed(label: str, better: Better | None) -> str:
    """A label with an arrow to where its metric is better."""
    return label + {"higher": " ↑", "lower": " ↓", None: ""}[better]


def sorted_names(names: set[str]) -> list[str]:
    """Test before validation, in the registry's order, unknown ones last."""
    order = {base: place for place, base in enumerate(metrics())}

    def place(name: str) -> tuple:
        parts = parse_name(name)
        return parts.split != FIRST_SPLIT, order.get(parts.base, len(order)), name

    return sorted(names, key=place)
