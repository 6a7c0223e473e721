"""The epsilons of a record that the page may show, given its guarantee."""

import math

from dpbench.privacy.statement import ACCOUNTANTS, Statement
from dpbench.runs.records.epsilon import (
    REFUTED,
    epsilon_or_reason,
    is_recorded_number,
    rounded_down,
)

SHOWN: dict[str, str] = {name: ACCOUNTANTS[name].description for name in ("pld", *ACCOUNTANTS)}
"""The accountants to choose from: the tightest bound first."""


def statement(privacy: Statement) -> dict:
    """A record's statement as the page's JSON; `axis` has the epsilon by accountant."""
    return {
        "axis": {name: epsilon_or_reason(privacy, name) for name in SHOWN},
        "guarantee": privacy["guarantee"],
        "why": privacy["why"],
        "notes": " ".join(privacy["notes"]),
        "adjacency": str(privacy["adjacency"]),
        "arithmetic": str(privacy["arithmetic"]),
        "delta": _number(privacy["delta"]),
        "steps": _number(privacy["steps"]),
        "audit": audit_bound(privacy),
    }


def audit_bound(privacy: Statement) -> dict | None:
    """The lower bound that an audit found, `privacy.audit.epsilon`, its confidence, and the claim
    that it refutes, if any."""
    audit = privacy.get("audit")
    if not isinstance(audit, dict) or (epsilon := _number(audit.get("epsilon"))) is None:
        return None
    # One bound in twenty exceeds a claim that is true; the audit's verdict allows for that.
    refuted = audit.get("claimed") if audit.get("verdict") == REFUTED else None
    bound = {"epsilon": epsilon, "confidence": _number(audit.get("confidence"))}
    return bound | {"refuted": _number(refuted)}


def bound_text(audit: dict) -> str:
    """The lower bound of `audit_bound`, rounded down, with its confidence: `2.50 (95 %)`."""
    level = audit["confidence"]
    text = rounded_down(audit["epsilon"])
    return text if level is None else f"{text} ({100 * level:.3g} %)"


def _number(value: object) -> float | None:
    """The value if it is a finite number."""
    return value if is_recorded_number(value) and math.isfinite(value) else None
