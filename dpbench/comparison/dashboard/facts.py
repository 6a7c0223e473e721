"""What a record says of its run, as names and texts for its dialog and for comparing two runs."""

from dpbench.comparison.dashboard.privacy import SHOWN, bound_text
from dpbench.comparison.dashboard.values import DASH, delta_text
from dpbench.comparison.tables.grid import epsilon_text, number
from dpbench.runs.records.collect import StoredRecord
from dpbench.runs.records.divergence import NOT_FINITE, nonfinite_gradients
from dpbench.runs.records.record import Record


def facts(stored: StoredRecord, statement: dict, cost: dict) -> dict[str, str]:
    """statement: from `privacy.statement`. cost: of the row, in milliseconds per step."""
    guarantee = ". ".join(filter(None, (statement["guarantee"], statement["why"])))
    epsilons = epsilon_texts(statement)
    audit = statement["audit"]
    return {
        "epsilon": "; ".join(f"{SHOWN[name]}: {text}" for name, text in epsilons.items()),
        "guarantee": guarantee,
        "on the data": statement["notes"] or DASH,
        "δ": delta_text(statement["delta"]),
        "adjacency": statement["adjacency"],
        "holds in arithmetic": statement["arithmetic"],
        "status": _status(stored.record),
        "time": _time(cost, statement["steps"]),
        "audit": f"at least {bound_text(audit)}" if audit else "none",
        "file": stored.source,
    }


def epsilon_texts(statement: dict) -> dict[str, str]:
    """The epsilon by accountant, marked if it is only claimed, or the reason why there is none."""
    return {
        name: epsilon_text(value, statement["guarantee"])
        for name, value in statement["axis"].items()
    }


def _status(record: Record) -> str:
    count = nonfinite_gradients(record)
    return f"{record.status}; {count} {NOT_FINITE}" if count else record.status


def _time(cost: dict, steps: float | None) -> str:
    if cost["ms"] is None:
        return DASH
    settings = ", ".join((cost["machine"], *cost["execution"]))
    return f"{number(cost['ms'], None)} ms per step of {steps:g} steps; {settings}"
