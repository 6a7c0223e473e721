"""The rule that decides whether a published number was reproduced."""

import math
from collections.abc import Iterator

from dpbench.tables.claims.spec import Claim
from dpbench.tables.conditions import row_name
from dpbench.tables.published import Published, PublishedTable
from dpbench.tables.spec import PAPER_SCALE, STANDARD_DEVIATION, Column, TableSpec

REPRODUCED = "reproduced"
CLOSE = "close"
DIFFERS = "differs"
UNDECIDED = "undecided"
NOTHING_PUBLISHED = "-"
MISSING = "missing"
IMPOSSIBLE = "not possible"
NO_NUMBER = "no number"
OTHER_SCALE = "other scale"


def verdict(
    spec: TableSpec,
    tolerance: float,
    ours: float,
    standard_error: float,
    n: int,
    printed: Published | None,
) -> str:
    """The verdict on our mean of n runs, by its standard error, in the column's unit.

    With r half a unit of the last printed digit, the mean is within the error if
    |ours - printed| <= 2 sqrt(se_ours^2 + se_printed^2 + r^2). It is then `reproduced` if n is at
    least the paper's number of runs. Otherwise it is `close` within the tolerance, `undecided` if
    within the error of fewer runs or if there is only one run, and else `differs`. A standard error
    that was not printed is 0. At another scale the verdict is always `other scale`.
    """
    if printed is None:
        return NOTHING_PUBLISHED
    if math.isnan(ours):
        return NO_NUMBER
    if spec.scale_label != PAPER_SCALE:
        return OTHER_SCALE
    errors = (standard_error, published_standard_error(spec, printed), printed.rounding)
    distance = abs(ours - float(printed.value))
    within = n > 1 and _at_most(distance, 2 * math.hypot(*errors))
    if within and n >= spec.published_runs:
        return REPRODUCED
    if _at_most(distance, tolerance):
        return CLOSE
    return UNDECIDED if within or n == 1 else DIFFERS


def published_standard_error(spec: TableSpec, printed: Published) -> float:
    """The standard error of a printed mean, from whichever spread the paper printed; else 0."""
    spread = float(printed.spread or 0)
    if spec.spread == STANDARD_DEVIATION:
        return spread / math.sqrt(spec.published_runs)
    return spread


def tolerance(spec: TableSpec, published: PublishedTable, condition: str, column: Column) -> float:
    """The largest difference that counts as close; 0 where no claim compares rows of the column.

    A third of the smallest gap that the paper printed, in that column and under that condition,
    between two rows that a claim compares: no constant is close to both.
    """
    gaps = [
        abs(float(first.value) - float(second.value))
        for claim in spec.claims
        for names in _pairs(claim, condition)
        for first, second in [[published.get((name, column.printed)) for name in names]]
        if first and second
    ]
    return min((gap / 3 for gap in gaps if gap > 0), default=0.0)


def _pairs(claim: Claim, condition: str) -> Iterator[tuple[str, str]]:
    """The names of the rows that a claim compares under a condition."""
    if claim.under is None or condition in claim.under:
        for row in claim.rows:
            for than in claim.than:
                if isinstance(than, str):
                    yield row_name(condition, row), row_name(condition, than)


def rule(spec: TableSpec) -> str:
    """The rule in words, as printed under the table."""
    if spec.scale_label != PAPER_SCALE:
        return (
            f"Cells: these runs are not at the paper's scale ({spec.scale_label}), so cells with a "
            f'published number say "{OTHER_SCALE}", and only claims and the order of the rows are '
            "judged."
        )
    return (
        "Cells: reproduced if |ours - published| <= 2 sqrt(se_ours^2 + se_published^2 + r^2), "
        f"with se the standard error over runs{_conversion(spec)} (0 where the paper printed no "
        "spread) and r half a unit of the last printed digit, over at least as many runs as the "
        f"paper's ({spec.published_runs}); close if within a third of the smallest gap that the "
        "paper printed, in that column and under that condition, between two rows that a claim "
        "compares; undecided if only few runs make it agree, or a single run does not; otherwise "
        "differs. "
        f'"{NOTHING_PUBLISHED}" means that nothing was published.'
    )


def _conversion(spec: TableSpec) -> str:
    if spec.spread != STANDARD_DEVIATION:
        return ""
    return f", a printed standard deviation being divided by sqrt({spec.published_runs})"


def _at_most(value: float, bound: float) -> bool:
    """value <= bound, but for rounding errors: 81 - 80 must not exceed a tolerance of 1."""
    return value <= bound + 1e-9
