"""The epsilons of each method, shown only as far as its guarantee supports them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from dpbench.comparison.tables.grid import NO_VALUE, Grid, number
from dpbench.comparison.tables.runs import PRIVACY, Row
from dpbench.privacy.accountants import PAPER_ACCOUNTANTS
from dpbench.privacy.guarantee import DEFAULT_PAPER_ACCOUNTANT, weakest
from dpbench.privacy.statement import ACCOUNTANTS, AccountantName, Statement
from dpbench.runs.records.epsilon import NO_PROOF, NOT_COMPUTED, delta_text, marked, rounded_up

TIGHTEST: AccountantName = "pld"
"""The accountant of the tightest upper bound."""

HEAD = (
    "method",
    "epsilon printed in the paper",
    "epsilon claimed by the paper's reasoning ({by})",
    *(a.label if a.is_bound else f"{a.label} (approximation)" for a in ACCOUNTANTS.values()),
    "delta",
    "arithmetic",
    "guarantee",
    "why",
)
AS_PLANNED = "Not run: as planned."
"""Said of the epsilons of a method that was not run."""


@dataclass(frozen=True)
class NotRun:
    """Why rows have no runs, and the privacy statements that those of some would have; by name."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    statements: Mapping[str, Statement] = field(default_factory=dict)


EVERYTHING_WAS_RUN = NotRun()


class RowPrivacy(NamedTuple):
    """The privacy of a row, by its label: epsilons by accountant as text, and what they hold for.

    printed, claimed: the epsilon printed in the paper, and that by its reasoning, "" for none.
    """

    label: str
    printed: str
    claimed: str
    epsilons: Mapping[AccountantName, str]
    delta: str
    arithmetic: str
    guarantee: str
    why: str


def privacy_of(
    rows: Sequence[Row],
    printed: Mapping[str, str],
    baseline: str,
    planned: Mapping[str, Statement] = EVERYTHING_WAS_RUN.statements,
) -> list[RowPrivacy]:
    """The privacy of each row that was run or planned: of several runs the largest epsilon, the
    weakest guarantee and all reasons. Where that is `none`, only the paper's shows a number.

    printed: the paper's epsilon of private methods, by condition; planned: statements of rows that
    cannot be run here, by name.
    """
    completed = [row if row.runs else _as_planned(row, planned.get(row.name)) for row in rows]
    return [
        _privacy(row, "" if row.method == baseline else printed.get(row.condition, ""))
        for row in completed
        if row.runs
    ]


def privacy_grid(
    stated: Iterable[RowPrivacy], paper_accountant: str = DEFAULT_PAPER_ACCOUNTANT
) -> Grid:
    """One line per row; paper_accountant: one of PAPER_ACCOUNTANTS."""
    head = tuple(name.format(by=PAPER_ACCOUNTANTS[paper_accountant][0]) for name in HEAD)
    lines = (
        (label, printed or NO_VALUE, claimed or NO_VALUE, *epsilons.values(), *others)
        for label, printed, claimed, epsilons, *others in stated
    )
    return Grid("Privacy", head, tuple(lines))


def _as_planned(row: Row, statement: Statement | None) -> Row:
    if statement is None:
        return row
    stated = statement | {"why": f"{statement['why']} {AS_PLANNED}"}
    plan = {f"privacy/{name}": value for name, value in stated.items() if name in PRIVACY}
    return replace(row, runs=[plan])


def _privacy(row: Row, printed: str) -> RowPrivacy:
    guarantee = weakest(run["privacy/guarantee"] for run in row.runs)
    claimed, delta = _largest(row, "claimed"), _largest(row, "delta")
    return RowPrivacy(
        row.label,
        printed,
        _nearest(claimed) if math.isfinite(claimed) else "",
        {
            name: _epsilon(_largest(row, name), guarantee, claimed, write)
            for name, write in WRITTEN.items()
        },
        NO_VALUE if math.isnan(delta) else delta_text(delta),
        " and ".join(sorted({run["privacy/arithmetic"] or NO_VALUE for run in row.runs})),
        guarantee,
        " ".join(sorted({run["privacy/why"] for run in row.runs})),
    )


def _nearest(epsilon: float) -> str:
    return number(epsilon, 2)


WRITTEN = {name: rounded_up if a.is_bound else _nearest for name, a in ACCOUNTANTS.items()}
"""How an epsilon is written: a bound may only be rounded up."""


def _epsilon(epsilon: float, guarantee: str, claimed: float, write: Callable[[float], str]) -> str:
    # The infinite epsilon of a method that claims no privacy is true, and needs no proof.
    if guarantee == "none" and (math.isfinite(claimed) or not math.isinf(epsilon)):
        return NO_PROOF
    return NOT_COMPUTED if math.isnan(epsilon) else marked(write(epsilon), guarantee)


def _largest(row: Row, name: str) -> float:
    return float(np.array([run[f"privacy/{name}"] for run in row.runs], dtype=float).max())
