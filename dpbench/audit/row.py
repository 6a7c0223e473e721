"""Audits as rows of a grid."""

from collections.abc import Callable, Iterable

from dpbench.audit.audit import Audit
from dpbench.tables.grid import Grid, grid_of

COLUMNS: dict[str, Callable[[Audit], str]] = {
    "method": lambda a: a.game.attacked,
    "attacked": lambda a: a.game.name,
    "canaries": lambda a: str(len(a.scores.values)),
    "steps": lambda a: str(a.game.ledger.steps),
    "claimed": lambda a: f"{a.nominal.epsilon:.3f}",
    "by": lambda a: a.nominal.source,
    "audited (own family)": lambda a: f"{a.bounds.family:.3f}",
    "audited (GDP)": lambda a: f"{a.bounds.gdp:.3f}",
    "audited (one run)": lambda a: f"{a.bounds.one_run:.3f}",
    "audited / claimed": lambda a: f"{a.ratio:.2f}",
    "verdict": lambda a: a.verdict,
}


def audit_grid(heading: str, audits: Iterable[Audit]) -> Grid:
    """A grid with a row for each audit."""
    return grid_of(heading, COLUMNS, audits)
