"""Audits as rows of a grid."""

from collections.abc import Callable, Iterable

from dpbench.audit.audit import AuditResult
from dpbench.comparison.tables.grid import Grid, grid_of
from dpbench.runs.records.epsilon import rounded_down, rounded_up

DIGITS = 3
"""Decimals of epsilons: fewer would hide by how much an audit falls short of its claim."""

COLUMNS: dict[str, Callable[[AuditResult], str]] = {
    "method": lambda a: a.game.attacked,
    "attacked": lambda a: a.game.name,
    "canaries": lambda a: str(len(a.scores.values)),
    "steps": lambda a: str(a.game.ledger.steps),
    "claimed": lambda a: rounded_up(a.nominal.epsilon, DIGITS),
    "by": lambda a: a.nominal.source,
    "audited (own family)": lambda a: rounded_down(a.bounds.family, DIGITS),
    "audited (GDP)": lambda a: rounded_down(a.bounds.gdp, DIGITS),
    "audited (one run)": lambda a: rounded_down(a.bounds.one_run, DIGITS),
    "audited / claimed": lambda a: rounded_down(a.ratio),
    "verdict": lambda a: a.verdict,
}


def audit_grid(heading: str, audits: Iterable[AuditResult]) -> Grid:
    """A grid with a row for each audit."""
    return grid_of(heading, COLUMNS, audits)
