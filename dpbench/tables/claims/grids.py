"""The claims of a table or figure as grids: one of the verdicts, and one of all comparisons."""

import math
import statistics
from collections.abc import Iterable, Sequence

from dpbench.tables.claims.comparisons import (
    FAILS,
    HOLDS,
    NOT_RUN,
    UNDECIDED,
    Comparison,
    JudgedClaim,
    interval,
)
from dpbench.tables.conditions import row_name
from dpbench.tables.counts import tally
from dpbench.tables.grid import NO_VALUE, Grid, number, signed

WORDS = {
    HOLDS: (HOLDS, "hold"),
    FAILS: (FAILS, "do not hold"),
    UNDECIDED: (UNDECIDED, UNDECIDED),
    NOT_RUN: (NOT_RUN, NOT_RUN),
}
"""The verdicts on claims, as they read for one and for several."""

RULE = (
    "Claims: a gap is the row's value minus the other's, paired by seed, with its 95% interval by "
    "Student's t. A comparison holds if the interval lies beyond 0 on the claimed side; it does "
    "not hold if it lies on the other side or, at the paper's scale, if all of it is below half of "
    "the printed gap; otherwise too few runs leave it undecided. A claim holds if all of its "
    "comparisons hold, and does not hold if one of them does not. p: one-sided Wilcoxon "
    "signed-rank test, at least 2^-n with n seeds."
)


def claims_grid(judged: Sequence[JudgedClaim]) -> Grid:
    """A line for each claim: whether the paper's own numbers support it, ours, and the verdict."""
    head = ("claim", "source", "in print", "ours", "verdict")
    lines = [(j.claim.statement, j.claim.source, _in_print(j), _ours(j), j.verdict) for j in judged]
    return _without_print(Grid("Claims", head, tuple(lines)), head.index("in print"))


def comparisons_grid(judged: Sequence[JudgedClaim]) -> Grid:
    """A line for each comparison of each claim."""
    head = ("claim", "row", "than", "in", "our gap [95% interval] (seeds)", "printed gap", "p")
    lines = [
        (
            j.claim.name,
            row_name(c.condition, c.row),
            str(c.than),
            c.quantity.name,
            gap_text(c),
            _printed_text(c),
            NO_VALUE if math.isnan(c.p) else number(c.p, 3),
            c.verdict,
        )
        for j in judged
        for c in j.comparisons
        if c.verdict != NOT_RUN
    ]
    grid = Grid("Every comparison of a claim", (*head, "verdict"), tuple(lines))
    return _without_print(grid, head.index("printed gap"))


def _without_print(grid: Grid, column: int) -> Grid:
    """The grid without a column of printed numbers in which all cells are empty."""
    if any(row[column] != NO_VALUE for row in grid.rows):
        return grid
    head, *rows = (line[:column] + line[column + 1 :] for line in (grid.head, *grid.rows))
    return Grid(grid.heading, head, tuple(rows))


def count_verdicts(verdicts: Iterable[str], failed: Sequence[str] = ()) -> str:
    """The counts of verdicts: `5 hold, 1 does not hold (ece), 2 undecided`. failed: their names."""
    return tally(verdicts, WORDS, {FAILS: ", ".join(failed)})


def gap_text(c: Comparison) -> str:
    """`+2.9 [+2.1, +3.7] (5)`."""
    if not c.gaps:
        return NO_VALUE
    digits, (low, high) = c.quantity.digits, interval(c.gaps)
    mean = signed(statistics.fmean(c.gaps), digits)
    if len(c.gaps) < 2:
        return f"{mean} (1)"
    return f"{mean} [{signed(low, digits)}, {signed(high, digits)}] ({len(c.gaps)})"


def _in_print(judged: JudgedClaim) -> str:
    """Whether the paper's own numbers support a claim."""
    printed = [c for c in judged.comparisons if c.agrees is not None]
    against = [c for c in printed if not c.agrees]
    if not printed:
        return NO_VALUE
    return f"against it in {len(against)} of {len(printed)}" if against else "agrees"


def _ours(judged: JudgedClaim) -> str:
    """The gap of a single comparison, or the counts of verdicts on several."""
    if len(judged.comparisons) == 1:
        return gap_text(judged.comparisons[0])
    return count_verdicts(c.verdict for c in judged.comparisons) or NO_VALUE


def _printed_text(c: Comparison) -> str:
    if c.printed is None:
        return NO_VALUE
    digits = c.quantity.digits
    gap = signed(c.printed.value, digits)
    return f"{gap} ± {number(c.printed.error, digits)}" if c.printed.error else gap
