"""The rows of a table that have no runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpbench.privacy.statement import Statement


@dataclass(frozen=True)
class NotRun:
    """Why rows have no runs, and the privacy statements that those of some would have; by name."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    statements: Mapping[str, Statement] = field(default_factory=dict)


EVERYTHING_WAS_RUN = NotRun()
