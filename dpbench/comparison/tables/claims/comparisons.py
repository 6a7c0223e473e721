"""Judges claims by runs: gaps between rows, paired by seed, against the difference that matters."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dpbench.comparison.compare.claims import NOT_RUN, Gap, Ruling, judge_claim
from dpbench.comparison.compare.pairs import doubts_of, gaps_of, margin_of, why_none
from dpbench.comparison.compare.side import GIVEN, BySeed, Side, Tuning
from dpbench.comparison.tables.claims.quantities import PrintedNumber, PrintedTable, Quantity
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.edition import RowClaim
from dpbench.comparison.tables.runs import Row
from dpbench.learning.metrics.paired_t import PairedTest, paired_test
from dpbench.learning.metrics.registry import parse_name


@dataclass(frozen=True)
class RowComparison:
    """One row against another (or a number), in one quantity and under one condition.

    gaps: the row's value - the other's by seed, for the seeds that both have; printed: the gap of
    the printed numbers; margin: the largest gap that does not matter; all in the quantity's unit.
    favour: 1 where the claim needs gaps above `by`, -1 where below -by. found: the gap as it is
    judged; None without runs. reason: why the verdict is undecided; "" where more seeds may decide.
    """

    condition: str
    row: str
    than: str | float
    quantity: Quantity
    gaps: BySeed
    printed: PrintedNumber | None
    favour: int
    by: float
    margin: float
    found: Gap | None = None
    verdict: str = NOT_RUN
    reason: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether the printed numbers support the claim; None where none were printed."""
        return None if self.printed is None else self.favour * self.printed.value > self.by

    def in_favour(self, gaps: BySeed) -> dict[int, float]:
        return {seed: self.margins(gap) for seed, gap in gaps.items()}

    @property
    def test(self) -> PairedTest:
        """The test of the gaps, in the quantity's unit; there must be one at least."""
        return paired_test([*self.gaps.values()], self.margin)

    def margins(self, gap: float) -> float:
        """What a gap has beyond what is claimed, in margins."""
        return (self.favour * gap - self.by) / (self.margin or 1.0)


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and its comparisons, judged together."""

    claim: RowClaim
    comparisons: tuple[RowComparison, ...]
    ruling: Ruling

    @property
    def verdict(self) -> str:
        return self.ruling.verdict


def judged_claim(claim: RowClaim, comparisons: Sequence[RowComparison]) -> JudgedClaim:
    """The claim with the verdicts on its comparisons, and on itself."""
    ruling, words = judge_claim([c.found for c in comparisons])
    pairs = zip(comparisons, words, strict=True)
    judged = (replace(c, verdict=word, reason=reason) for c, (word, reason) in pairs)
    return JudgedClaim(claim, tuple(judged), ruling)


@dataclass(frozen=True)
class ClaimEvidence:
    """The data that claims are judged by: rows, of whose variants the first counts, and printed
    numbers. conditions: their labels; tuning: by the name of a row; second_search: by method, the
    same one with the settings of another search."""

    conditions: Sequence[str]
    rows: Sequence[Row]
    published: PrintedTable
    tuning: Mapping[str, Tuning] = field(default_factory=dict)
    second_search: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _by_name(self) -> dict[str, Row]:
        return {row.name: row for row in reversed(self.rows)}

    def judge(self, claim: RowClaim, quantities: Sequence[Quantity]) -> JudgedClaim:
        """The claim with the verdicts on its comparisons. quantities: those of the claim."""
        under = [c for c in self.conditions if claim.labels is None or c in claim.labels]
        cells = itertools.product(under, claim.rows, claim.than, quantities)
        return judged_claim(claim, [self._compare(claim, *cell) for cell in cells])

    def gaps(
        self, condition: str, row: str, than: str | float, quantity: Quantity
    ) -> dict[int, float]:
        """The row's value - the other's by seed, for the seeds that both have."""
        return dict(sorted(gaps_of(*self._pair(condition, row, than, quantity)).items()))

    def printed_gap(
        self, condition: str, row: str, than: str | float, quantity: Quantity
    ) -> PrintedNumber | None:
        """The gap of the printed numbers; None where one of them was not printed."""
        ours = quantity.printed(self.published, row_name(condition, row))
        if not isinstance(than, str):
            return ours and ours - PrintedNumber(float(than), 0.0, 0.0)
        theirs = quantity.printed(self.published, self._full_name(condition, than))
        return ours - theirs if ours and theirs else None

    def _compare(
        self, claim: RowClaim, condition: str, row: str, than: str | float, quantity: Quantity
    ) -> RowComparison:
        # The margin is that of the quantity's first column, and print has no part in it.
        values = self._pair(condition, row, than, quantity.first)
        compared = RowComparison(
            condition=condition,
            row=row,
            than=than,
            quantity=quantity,
            gaps=self.gaps(condition, row, than, quantity),
            printed=self.printed_gap(condition, row, than, quantity),
            favour={"better": quantity.sign, "larger": 1, "smaller": -1}[claim.relation],
            by=claim.by,
            margin=margin_of(*values, quantity.columns[0].margin),
        )
        return replace(compared, found=self._found(claim, compared)) if compared.gaps else compared

    def _found(self, claim: RowClaim, compared: RowComparison) -> Gap:
        # Budgets differ by design between conditions.
        has_budgets = self._shares_condition(compared) and not claim.unequal_budgets
        ours = self._side(compared, compared.row, has_budgets)
        theirs = self._side(compared, compared.than, has_budgets)
        return Gap(
            in_favour=compared.in_favour(compared.gaps),
            margin=0.0 if claim.by else 1.0,
            doubts=doubts_of(ours, theirs),
            beside=compared.in_favour(self._gaps_again(compared)),
            no_headroom=self._no_headroom(compared),
        )

    def _side(self, compared: RowComparison, name: str | float, has_budgets: bool) -> Side:
        if not isinstance(name, str):
            return Side(str(name), {})
        full = self._full_name(compared.condition, name)
        row = self._by_name[full]
        values, budgets = compared.quantity.values(row), row.budgets if has_budgets else ()
        return Side(name, values, budgets, tuning=self.tuning.get(full, GIVEN))

    def _gaps_again(self, compared: RowComparison) -> BySeed:
        """The gaps where one of the two methods has the settings of another search; none else."""
        row = self.second_search.get(compared.row, compared.row)
        than = self.second_search.get(str(compared.than), compared.than)
        if row == than or (row, than) == (compared.row, compared.than):
            return {}
        return self.gaps(compared.condition, row, than, compared.quantity)

    def _no_headroom(self, compared: RowComparison) -> str:
        """Why nothing can be said of a row that does not win; "" where it is no private one that
        is claimed to be better than another under the same condition."""
        than, condition, quantity = compared.than, compared.condition, compared.quantity
        is_gain = (
            compared.favour == quantity.sign and parse_name(quantity.columns[0].metric).is_known
        )
        is_row = isinstance(than, str) and self._shares_condition(compared)
        if compared.by < 0 or not is_gain or not is_row:
            return ""
        rows = [row for row in self._by_name.values() if row.condition == condition and row.runs]
        free = {row.method for row in rows if any(not b.is_private for b in row.budgets)}
        if {compared.row, than} & free:
            return ""
        without = {compared.row, than, *self.second_search.values()}
        values = {r.method: quantity.values(r) for r in rows if r.method not in without}
        return why_none(
            self._values(condition, str(than), quantity),
            [by_seed for method, by_seed in values.items() if method in free],
            [by_seed for method, by_seed in values.items() if method not in free],
            compared.favour,
            max(compared.margin, compared.by),
        )

    def _shares_condition(self, compared: RowComparison) -> bool:
        row = self._by_name.get(str(compared.than))
        return row is None or row.condition == compared.condition

    def _values(self, condition: str, name: str, quantity: Quantity) -> dict[int, float]:
        row = self._by_name.get(self._full_name(condition, name))
        return quantity.values(row) if row else {}

    def _full_name(self, condition: str, name: str) -> str:
        return name if name in self._by_name else row_name(condition, name)

    def _pair(
        self, condition: str, row: str, than: str | float, quantity: Quantity
    ) -> tuple[BySeed, BySeed]:
        ours = self._values(condition, row, quantity)
        if isinstance(than, str):
            return ours, self._values(condition, than, quantity)
        return ours, dict.fromkeys(ours, float(than))
