"""Judges claims by runs: gaps between rows, paired by seed, with confidence intervals."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpbench.metrics.significance import signed_rank
from dpbench.metrics.students_t import estimate
from dpbench.tables.claims.quantities import PrintedNumber, PrintedTable, Quantity
from dpbench.tables.claims.spec import Claim
from dpbench.tables.conditions import row_name
from dpbench.tables.runs import Row

HOLDS = "holds"
FAILS = "does not hold"
UNDECIDED = "undecided"
NOT_RUN = "not run"


@dataclass(frozen=True)
class Comparison:
    """One row against another (or a number), in one quantity and under one condition.

    gaps: the row's value - the other's for each seed that both have, in the quantity's unit;
    printed: the gap of the printed numbers. favour: 1 where the claim needs gaps above `by`, -1
    where below -by. p: of the one-sided Wilcoxon signed-rank test, NaN without a seed.
    """

    condition: str
    row: str
    than: str | float
    quantity: Quantity
    gaps: tuple[float, ...]
    printed: PrintedNumber | None
    favour: int
    by: float
    p: float
    verdict: str

    @property
    def agrees(self) -> bool | None:
        """Whether the printed numbers support the claim; None where none were printed."""
        return None if self.printed is None else self.favour * self.printed.value > self.by


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and its comparisons."""

    claim: Claim
    comparisons: tuple[Comparison, ...]

    @property
    def verdict(self) -> str:
        """HOLDS if all comparisons do, FAILS if one of them does, else UNDECIDED or NOT_RUN."""
        verdicts = {comparison.verdict for comparison in self.comparisons}
        if not verdicts - {NOT_RUN}:
            return NOT_RUN
        if FAILS in verdicts:
            return FAILS
        return HOLDS if verdicts == {HOLDS} else UNDECIDED


@dataclass(frozen=True)
class Evidence:
    """The data that claims are judged by: rows by name, and the printed numbers.

    conditions: their labels; at_paper_scale: whether the runs are of the paper's scale.
    """

    conditions: Sequence[str]
    at_paper_scale: bool
    rows: Mapping[str, Row]
    published: PrintedTable

    def judge(self, claim: Claim, quantities: Sequence[Quantity]) -> JudgedClaim:
        """The claim with the verdicts on its comparisons. quantities: those of the claim."""
        return JudgedClaim(claim, tuple(self._comparisons(claim, quantities)))

    def gaps(
        self, condition: str, row: str, than: str | float, quantity: Quantity
    ) -> tuple[float, ...]:
        """The row's value - the other's for each seed that both have."""
        ours = self._values(condition, row, quantity)
        theirs = self._others(condition, than, quantity, ours)
        # Rounded, so that rounding errors of equal values do not count as gaps.
        return tuple(round(ours[s] - theirs[s], 12) for s in sorted(ours.keys() & theirs.keys()))

    def printed_gap(
        self, condition: str, row: str, than: str | float, quantity: Quantity
    ) -> PrintedNumber | None:
        """The gap of the printed numbers; None where one of them was not printed."""
        ours = quantity.printed(self.published, row_name(condition, row))
        if not isinstance(than, str):
            return ours and ours - PrintedNumber(float(than), 0.0, 0.0)
        theirs = quantity.printed(self.published, self._full_name(condition, than))
        return ours - theirs if ours and theirs else None

    def _comparisons(self, claim: Claim, quantities: Sequence[Quantity]) -> Iterator[Comparison]:
        for condition in self.conditions:
            if claim.under is not None and condition not in claim.under:
                continue
            for row in claim.rows:
                for than in claim.than:
                    for quantity in quantities:
                        yield self._compare(claim, condition, row, than, quantity)

    def _compare(
        self, claim: Claim, condition: str, row: str, than: str | float, quantity: Quantity
    ) -> Comparison:
        gaps = self.gaps(condition, row, than, quantity)
        printed = self.printed_gap(condition, row, than, quantity)
        favour = {"better": quantity.sign, "larger": 1, "smaller": -1}[claim.relation]
        in_favour = [favour * gap - claim.by for gap in gaps]
        least = -math.inf
        if printed and self.at_paper_scale and not claim.by:
            least = favour * printed.value / 2
        verdict = verdict_of(in_favour, least)
        p = signed_rank(in_favour)
        return Comparison(
            condition, row, than, quantity, gaps, printed, favour, claim.by, p, verdict
        )

    def _values(self, condition: str, name: str, quantity: Quantity) -> dict[int, float]:
        row = self.rows.get(self._full_name(condition, name))
        return quantity.values(row) if row and len(row.runs) else {}

    def _full_name(self, condition: str, name: str) -> str:
        """The name of a row under the condition, unless it is that of one under another."""
        return name if name in self.rows else row_name(condition, name)

    def _others(
        self, condition: str, than: str | float, quantity: Quantity, ours: Mapping[int, float]
    ) -> dict[int, float]:
        if isinstance(than, str):
            return self._values(condition, than, quantity)
        return dict.fromkeys(ours, float(than))


def evidence(
    conditions: Sequence[str], at_paper_scale: bool, rows: Sequence[Row], published: PrintedTable
) -> Evidence:
    """The evidence in rows; of several variants of a method, the first row counts."""
    first_rows: dict[str, Row] = {}
    for row in rows:
        first_rows.setdefault(row.name, row)
    return Evidence(conditions, at_paper_scale, first_rows, published)


def verdict_of(gaps: Sequence[float], least: float = -math.inf) -> str:
    """The verdict on gaps, of which those above 0 favour the claim.

    least: half of the printed gap; an interval that lies below it excludes the paper's effect.
    Rows that are equal in all runs are no evidence for a claim, but against it.
    """
    if not gaps:
        return NOT_RUN
    low, high = interval(gaps)
    if low > 0:
        return HOLDS
    return FAILS if high <= 0 or high < least else UNDECIDED


def interval(gaps: Sequence[float]) -> tuple[float, float]:
    """The 95% confidence interval of the mean gap by Student's t.

    NaN where gaps are not all finite; infinite for fewer than two.
    """
    if len(gaps) < 2 and all(map(math.isfinite, gaps)):
        return -math.inf, math.inf
    found = estimate(gaps)
    if found is None or found.half is None:
        return math.nan, math.nan
    return found.mean - found.half, found.mean + found.half
