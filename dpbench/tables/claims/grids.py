"""The claims of a table or figure as grids: one of the verdicts, and one of all comparisons."""

import statistics
from collections.abc import Iterable, Sequence

from dpbench.metrics.paired_t import LEVEL
from dpbench.system.grouping import grouped
from dpbench.tables.claims.claim import Claim
from dpbench.tables.claims.comparisons import Comparison, JudgedClaim
from dpbench.tables.conditions import row_name
from dpbench.tables.counts import counted, tally
from dpbench.tables.grid import NO_VALUE, Grid, interval_text, number, signed
from dpbench.tables.verdict_words import FAILS, FORMS, NOT_RUN

RULE = (
    "Claims: a gap is the row's value minus the other's, paired by seed, with its 95% interval by "
    "Student's t. A comparison holds if the gap is shown to lie on the claimed side; it does not "
    "hold if it is shown to lie on the other side, or to be smaller than the margin (two one-sided "
    "tests); otherwise it is undecided. All tests are at 5%, with Holm's correction for the "
    "comparisons of the claim. A claim of several comparisons is judged by its effect: the mean of "
    "their gaps, each in margins and positive where it supports the claim, over the seeds that "
    "they share. It holds if the 95% interval of the effect lies above 0, but only on average if "
    "no comparison holds by itself, or some does not hold or is more than a margin on the other "
    "side; it does not hold if the effect is shown to lie below 0 or to be smaller than a margin. "
    "docs/verdicts.md explains the rule."
)

RULE_OF_BY = (
    "A claim of a gap of at least some size, or that a row falls behind by at most some size, is "
    "judged by the gap less that size; it is not refuted by a gap that is smaller than the margin."
)


def rules_of(claims: Iterable[Claim]) -> list[str]:
    """The sentences that say how claims are judged."""
    return [RULE, *([RULE_OF_BY] if any(claim.by for claim in claims) else [])]


def claims_grid(judged: Sequence[JudgedClaim]) -> Grid:
    """A line for each claim: whether the paper's own numbers support it, ours, and the verdict."""
    head = ("claim", "source", "in print", "ours", "verdict")
    lines = [(j.claim.statement, j.claim.source, _in_print(j), _ours(j), j.verdict) for j in judged]
    return _without_print(Grid("Claims", head, tuple(lines)), head.index("in print"))


def comparisons_grid(judged: Sequence[JudgedClaim]) -> Grid:
    """A line for each comparison of each claim."""
    gap = "our gap [95% interval] (seeds)"
    head = ("claim", "row", "than", "in", gap, "margin", "printed gap", "verdict")
    lines = [
        (
            j.claim.name,
            row_name(c.condition, c.row),
            str(c.than),
            c.quantity.name,
            gap_text(c),
            number(c.margin, None),
            _printed_text(c),
            ": ".join(filter(None, (c.verdict, c.excused))),
        )
        for j in judged
        for c in j.comparisons
        if c.verdict != NOT_RUN
    ]
    grid = Grid("Every comparison of a claim", head, tuple(lines))
    return _without_print(grid, head.index("printed gap"))


def _without_print(grid: Grid, column: int) -> Grid:
    """The grid without a column of printed numbers in which all cells are empty."""
    if any(row[column] != NO_VALUE for row in grid.rows):
        return grid
    head, *rows = (line[:column] + line[column + 1 :] for line in (grid.head, *grid.rows))
    return Grid(grid.heading, head, tuple(rows))


def count_verdicts(verdicts: Iterable[str], failed: Sequence[str] = ()) -> str:
    """The counts of verdicts: `5 hold, 1 does not hold (ece), 2 undecided`. failed: their names."""
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
    shown = grouped((comparison.quantity.name, comparison) for comparison in compared)
    if not shown:
        return ""
    sizes = ", ".join(f"{name} {_smallest(found)}" for name, found in shown.items())
    return (
        f"Power: of the gaps that these seeds would show in four of five repetitions, the smallest "
        f"is {sizes} (median over the comparisons, each by itself)."
    )


def _smallest(comparisons: Sequence[Comparison]) -> str:
    sizes = [comparison.test.smallest_difference() for comparison in comparisons]
    return number(statistics.median(sizes), comparisons[0].quantity.digits)


def gap_text(c: Comparison) -> str:
    """`+2.9 [+2.1, +3.7] (5)`."""
    return f"{interval_text(c.test, c.quantity.digits)} ({c.test.n})" if c.gaps else NO_VALUE


def _in_print(judged: JudgedClaim) -> str:
    """Whether the paper's own numbers support a claim, and the size of their effect."""
    printed = [c for c in judged.comparisons if c.agrees is not None]
    against = [c for c in printed if not c.agrees]
    if not printed:
        return NO_VALUE
    support = f"against it in {len(against)} of {len(printed)}" if against else "agrees"
    if len(printed) == 1:
        return f"{support} ({_printed_text(printed[0])})"
    effect = statistics.fmean(c.printed_in_favour for c in printed)
    return f"{support} ({signed(effect, 1)} margins)"


def _ours(judged: JudgedClaim) -> str:
    """The gap of a single comparison, or the effect and the counts of verdicts on several."""
    if len(judged.comparisons) == 1:
        return gap_text(judged.comparisons[0])
    counts = count_verdicts(c.verdict for c in judged.comparisons) or NO_VALUE
    if judged.effect is None:
        return counts
    return f"{interval_text(judged.effect, 1)} margins ({judged.effect.n}); {counts}"


def _printed_text(c: Comparison) -> str:
    if c.printed is None:
        return NO_VALUE
    digits = c.quantity.digits
    gap = signed(c.printed.value, digits)
    return f"{gap} ± {number(c.printed.error, digits)}" if c.printed.error else gap
