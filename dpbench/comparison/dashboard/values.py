"""Metrics and values as text: their labels and units, and how the page and its files round."""

import math

from dpbench.comparison.tables.grid import number, signed
from dpbench.learning.metrics.metric import Better
from dpbench.learning.metrics.registry import MetricName, metrics, parse_name
from dpbench.runs.records import epsilon as rounding
from dpbench.system.validate import spelled_number

DASH = "–"
"""Where there is no value."""

FIRST_SPLIT = "test"


def finite_number(text: str) -> float | None:
    """The finite number that a text spells; None if it spells none."""
    number = spelled_number(text)
    return number if isinstance(number, float) and math.isfinite(number) else None


def value_text(value: float | None, percent: bool) -> str:
    """A value without its unit: in percent with one decimal, else in three significant digits."""
    if value is None:
        return DASH
    return number(100 * value, 1) if percent else number(value, None)


def with_unit(value: float | None, percent: bool) -> str:
    """A value with its unit, such as `86.6 %`."""
    return value_text(value, percent) + (" %" if percent and value is not None else "")


def gap_text(gap: tuple[float, float | None], percent: bool) -> str:
    """A difference with its sign and, if it has one, the half of its interval: `+2.0 ± 0.3`."""
    mean, half = gap
    text = signed(100 * mean if percent else mean, 1 if percent else None)
    text = text.replace("-", "−", 1) if text.startswith("-") else text
    return text if half is None else f"{text} ± {value_text(half, percent)}"


def delta_text(delta: float | None) -> str:
    """A delta in three significant digits, rounded up."""
    return DASH if delta is None else rounding.delta_text(delta, 3)


def epsilon_text(epsilon: float | str) -> str:
    """An epsilon rounded up, or the reason why there is none."""
    return epsilon if isinstance(epsilon, str) else rounding.rounded_up(epsilon)


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
