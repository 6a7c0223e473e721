"""Trials of private searches, whose epsilon is that of the search."""

from dpbench.privacy.statement import UPPER_BOUNDS, Statement, alike
from dpbench.runs.records.record import Record

OF_A_TRIAL = (
    "This is one trial of a private search, and choosing it among several costs more than its "
    "ledger says: the page of the search has the epsilon of both."
)


def is_trial(record: Record) -> bool:
    """Whether the record is of a trial of a private search."""
    return record.config.get("trial") is not None


def released(record: Record, statement: Statement) -> Statement:
    """The statement of a record as others may read it; of a trial without its epsilons and bounds
    of attacks, which are not those of what is published."""
    if not is_trial(record):
        return statement
    return {
        **statement,
        **alike(None, None),
        "attacks": None,
        "refused": dict.fromkeys(UPPER_BOUNDS, OF_A_TRIAL),
        "why": f"{statement['why']} {OF_A_TRIAL}",
    }
