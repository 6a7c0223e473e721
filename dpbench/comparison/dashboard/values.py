"""Metrics, epsilons and values as text: labels and units, and how the page and its files round."""

import math

from dpbench.comparison.tables.grid import number, signed
from dpbench.learning.metrics.metric import Better
from dpbench.learning.metrics.registry import metrics, parse_name
from dpbench.learning.metrics.students_t import Estimate
from dpbench.privacy.statement import ACCOUNTANTS, Statement
from dpbench.runs.records import epsilon as bounds
from dpbench.runs.records.record import Record
from dpbench.system.validate import spelled_number

SHOWN: dict[str, str] = {name: ACCOUNTANTS[name].description for name in ("pld", *ACCOUNTANTS)}
"""The accountants to choose from: the tightest bound first."""


def epsilons(record: Record) -> dict[str, float | str]:
    """The epsilon by accountant, or why there is none; of a trial that of its search."""
    if bounds.is_trial(record):
        return dict.fromkeys(SHOWN, bounds.OF_ITS_SEARCH)
    return {name: bounds.epsilon_or_reason(record.statement, name) for name in SHOWN}


def audit_bound(privacy: Statement) -> dict | None:
    """The lower bound that an audit found, `privacy.audit.epsilon`, its confidence, and the claim
    that it refutes, if any."""
    audit = privacy.get("audit")
    if not isinstance(audit, dict) or (epsilon := _number(audit.get("epsilon"))) is None:
        return None
    # One bound in twenty exceeds a claim that is true; the audit's verdict allows for that.
    refuted = audit.get("claimed") if audit.get("verdict") == bounds.REFUTED else None
    bound = {"epsilon": epsilon, "confidence": _number(audit.get("confidence"))}
    return bound | {"refuted": _number(refuted)}


def bound_text(audit: dict) -> str:
    """The lower bound of `audit_bound`, rounded down, with its confidence: `2.50 (95 %)`."""
    level = audit["confidence"]
    text = bounds.rounded_down(audit["epsilon"])
    return text if level is None else f"{text} ({100 * level:.3g} %)"


def _number(value: object) -> float | None:
    return value if bounds.is_recorded_number(value) and math.isfinite(value) else None


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
    return value_text(value, percent) + (" %" if percent and value is not None else "")


def gap_text(gap: Estimate, percent: bool) -> str:
    """A difference with its sign and, if it has one, the half of its interval: `+2.0 ± 0.3`."""
    text = signed(100 * gap.mean if percent else gap.mean, 1 if percent else None)
    text = text.replace("-", "−", 1) if text.startswith("-") else text
    return text if gap.half is None else f"{text} ± {value_text(gap.half, percent)}"


def delta_text(delta: float | None) -> str:
    """A delta in three significant digits, rounded up."""
    return DASH if delta is None else bounds.delta_text(delta, 3)


def metric_entry(name: str) -> dict:
    """A metric `split/name` or `split/name/group` as the page's JSON. kind: "calibration",
    "fairness", "group" (of one group of examples) or "utility". title: the label with the group."""
    parts = parse_name(name)
    metric = parts.metric
    split = "" if parts.split in ("", FIRST_SPLIT) else f" ({parts.split})"
    label = f"{metric.label}{split}"
    return {
        "name": name,
        "label": label,
        "title": f"{label}: {parts.group}" if parts.group else label,
        "percent": metric.unit == "percent",
        "better": metric.better,
        "kind": "group" if parts.group else metric.kind,
    }


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
