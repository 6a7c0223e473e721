"""Which epsilon of a record may be shown: never more than its guarantee says."""

import math
from typing import TypeGuard

ADJACENCY = "add or remove one example"
"""Of most records, and of those that do not say."""

WITH_EPSILON = ("proven", "approximate")
"""The guarantees of which an epsilon may be shown."""

NO_PROOF = "no proof"
NOT_PRIVATE = "not private"
NOT_COMPUTED = "not computed"
ACCOUNTANTS = {
    "pld": "PLD (upper bound)",
    "rdp": "RDP (upper bound)",
    "gdp": "GDP (approximation, can understate)",
}


def epsilon_or_reason(privacy: dict, accountant: str) -> float | str:
    """The epsilon by an accountant if it is finite and the guarantee supports it, else why not."""
    value = privacy.get(accountant)
    if _is_number(value) and math.isinf(value):
        return NOT_PRIVATE
    if privacy["guarantee"] not in WITH_EPSILON:
        return NO_PROOF
    return value if _is_number(value) and value >= 0 else NOT_COMPUTED


def statement(privacy: dict) -> dict:
    """What the page says of a record's privacy; `axis` holds epsilon by accountant."""
    return {
        "axis": {name: epsilon_or_reason(privacy, name) for name in ACCOUNTANTS},
        "guarantee": privacy["guarantee"],
        "why": str(privacy.get("why", "")),
        "adjacency": str(privacy.get("adjacency", ADJACENCY)),
        "arithmetic": str(privacy.get("arithmetic", "real")),
        "delta": _number(privacy.get("delta")),
        "steps": _number(privacy.get("steps")),
        "audit": audit_bound(privacy),
    }


def audit_bound(privacy: dict) -> dict | None:
    """The lower bound that an audit found, `privacy.audit.epsilon`, and its confidence, if any."""
    audit = privacy.get("audit")
    if not isinstance(audit, dict) or (epsilon := _number(audit.get("epsilon"))) is None:
        return None
    return {"epsilon": epsilon, "confidence": _number(audit.get("confidence"))}


def _number(value: object) -> float | None:
    """The value if it is a finite number."""
    return value if _is_number(value) and math.isfinite(value) else None


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
