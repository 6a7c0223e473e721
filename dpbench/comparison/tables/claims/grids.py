"""The claims of a table or figure as grids: one of the verdicts, and one of all comparisons."""

import statistics
from collections.abc import Callable, Iterable, Sequence

from dpbench.comparison.compare.verdict import reasoned
from dpbench.comparison.tables.claims.comparisons import JudgedClaim, RowComparison
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.edition import RowClaim
from dpbench.comparison.tables.grid import (
    NO_VALUE,
    Grid,
    grid_of,
    interval_text,
    number,
    signed,
    tally,
)
from dpbench.comparison.tables.verdict import FAILS, FORMS, NOT_RUN
from dpbench.learning.metrics.paired_t import LEVEL
from dpbench.system.errors import counted
from dpbench.system.grouping import grouped

RULE = (
    "Claims: a gap is the row's value minus the other's, paired by seed, with its 95% interval by "
    "Student's t. A claim is judged by its effect, the mean of its gaps, each in margins and "
    "positive where it supports the claim, over the seeds that all share. It holds if a gain is "
    "shown; holds within a margin if the gain is also shown to be smaller than the margin (two "
    "one-sided tests); makes no difference if the effect is shown to lie within the margin, and no "
    "gain is; and fails if a loss is shown. On average: some comparison is shown to point the "
    "other way, or lies a margin beyond. Else it is undecided, as where a reason stands in the "
    "way that holds whatever the results are: a row was tuned at an edge of its range, or there "
    "was nothing to win. All tests are at 5%, with Holm's correction for the comparisons of the "
    "claim. docs/verdicts.md explains the rules."
)

RULE_OF_BY = (
    "A claim of a gap of at least some size, or that a row falls behind by at most some size, is "
    "judged by the gap less that size: it holds or fails, whatever the margin is."
)


def rules_of(claims: Iterable[RowClaim]) -> list[str]:
    """The sentences that say how claims are judged."""
    return [RULE, *([RULE_OF_BY] if any(claim.by for claim in claims) else [])]


def claims_grid(judged: Sequence[JudgedClaim]) -> Grid:
    """A line for each claim: whether the paper's own numbers support it, ours, and the verdict."""
    columns: dict[str, Callable[[JudgedClaim], str]] = {
        "claim": lambda j: j.claim.statement,
        "source": lambda j: _source(j.claim),
        "in print": _in_print,
        "ours": _ours,
        "verdict": lambda j: reasoned(j.verdict, j.ruling.reason),
    }
    return _without_print(grid_of("Claims", columns, judged), "in print")


PLACE: dict[str, Callable[[RowComparison], str]] = {
    "row": lambda c: row_name(c.condition, c.row),
    "than": lambda c: str(c.than),
    "in": lambda c: c.quantity.name,
    "our gap [95% interval] (seeds)": lambda c: gap_text(c),
    "margin": lambda c: number(c.margin, None),
}
"""What is compared, and the gap."""


def comparisons_grid(judged: Sequence[JudgedClaim]) -> Grid:
    """A line for each comparison of each claim."""
    columns: dict[str, Callable[[RowComparison], str]] = {
        **PLACE,
        "printed gap": _printed_text,
        "verdict": lambda c: reasoned(c.verdict, c.reason),
    }
    run = [(j.claim.name, c) for j in judged for c in j.comparisons if c.verdict != NOT_RUN]
    rows = tuple((name, *(text(c) for text in columns.values())) for name, c in run)
    grid = Grid("Every comparison of a claim", ("claim", *columns), rows)
    return _without_print(grid, "printed gap")


def _source(claim: RowClaim) -> str:
    """`Xia et al. 2023 (abstract read)`; a paper that was read in full is not said to be."""
    in_part = claim.read and claim.read != "full text"
    return f"{claim.source} ({claim.read} read)" if in_part else claim.source


def _without_print(grid: Grid, head: str) -> Grid:
    column = grid.head.index(head)
    if any(row[column] != NO_VALUE for row in grid.rows):
        return grid
    kept, *rows = (line[:column] + line[column + 1 :] for line in (grid.head, *grid.rows))
    return Grid(grid.heading, kept, tuple(rows))


def count_verdicts(verdicts: Iterable[str], failed: Sequence[str] = ()) -> str:
    """The counts of verdicts: `5 hold, 1 fails (ece), 2 undecided`. failed: their names."""
    return tally(verdicts, FORMS, {FAILS: ", ".join(failed)})


def chance_line(judged: Sequence[JudgedClaim]) -> str:
    """How many comparisons of two rows the claims make, and how many chance alone would decide
    wrongly; "" where they make none without a gap `by` some size."""
    run = [[c for c in j.comparisons if c.verdict != NOT_RUN] for j in judged]
    equal = [[c for c in found if isinstance(c.than, str) and not c.by] for found in run]
    claims, number_of = sum(map(bool, equal)), sum(map(len, equal))
    if not claims:
        return ""
    which = "" if number_of == sum(map(len, run)) else " of two rows that claim no size"
    return (
        f"The claims make {counted(number_of, 'comparison')}{which}. If no row differed from "
        f"another, {LEVEL * number_of:.1f} of them would seem to differ at 5% each; Holm's "
        f"correction leaves at most {LEVEL * claims:.1f} of {counted(claims, 'claim')} in which "
        "one does."
    )


def power_line(judged: Sequence[JudgedClaim]) -> str:
    """The smallest gaps that the seeds can show, by quantity."""
    compared = (c for j in judged for c in j.comparisons if c.gaps and c.test.deviation > 0)
    shown = grouped((c.quantity, c.test.smallest_difference()) for c in compared)
    if not shown:
        return ""
    smallest = ((q, number(statistics.median(found), q.digits)) for q, found in shown.items())
    sizes = ", ".join(f"{quantity.name} {size}" for quantity, size in smallest)
    return (
        f"Power: of the gaps that these seeds would show in four of five repetitions, the smallest "
        f"is {sizes} (median over the comparisons, each by itself)."
    )


def gap_text(c: RowComparison) -> str:
    """`+2.9 [+2.1, +3.7] (5)`."""
    return f"{interval_text(c.test, c.quantity.digits)} ({c.test.n})" if c.gaps else NO_VALUE


def _in_print(judged: JudgedClaim) -> str:
    printed = [c for c in judged.comparisons if c.agrees is not None]
    against = [c for c in printed if not c.agrees]
    if not printed:
        return NO_VALUE
    support = f"against it in {len(against)} of {len(printed)}" if against else "agrees"
    if len(printed) == 1:
        return f"{support} ({_printed_text(printed[0])})"
    effect = statistics.fmean(c.margins(c.printed.value) for c in printed if c.printed)
    return f"{support} ({signed(effect, 1)} margins)"


def _ours(judged: JudgedClaim) -> str:
    if len(judged.comparisons) == 1:
        return gap_text(judged.comparisons[0])
    counts = count_verdicts(c.verdict for c in judged.comparisons) or NO_VALUE
    if (effect := judged.ruling.effect) is None:
        return counts
    return f"{interval_text(effect, 1)} margins ({effect.n}); {counts}"


def _printed_text(c: RowComparison) -> str:
    if c.printed is None:
        return NO_VALUE
    digits = c.quantity.digits
    gap = signed(c.printed.value, digits)
    return f"{gap} ± {number(c.printed.error, digits)}" if c.printed.error else gap
