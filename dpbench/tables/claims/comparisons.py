"""Judges claims by runs: gaps between rows, paired by seed, against the difference that matters."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpbench.metrics.paired_t import LEVEL, PairedTest, holm, paired_test
from dpbench.tables.claims.claim import Claim
from dpbench.tables.claims.quantities import PrintedNumber, PrintedTable, Quantity
from dpbench.tables.conditions import row_name
from dpbench.tables.runs import Row
from dpbench.tables.verdict_words import FAILS, HOLDS, NOT_RUN, ON_AVERAGE, UNDECIDED


@dataclass(frozen=True)
class Comparison:
    """One row against another (or a number), in one quantity and under one condition.

    gaps: the row's value - the other's for each of the seeds that both have; printed: the gap of
    the printed numbers; margin: the largest gap that does not matter; all in the quantity's unit.
    favour: 1 where the claim needs gaps above `by`, -1 where below -by. excused: what else than the
    methods may be why, such as a loser that was tuned at the edge of its range; "" if nothing is.
    """

    condition: str
    row: str
    than: str | float
    quantity: Quantity
    seeds: tuple[int, ...]
    gaps: tuple[float, ...]
    printed: PrintedNumber | None
    favour: int
    by: float
    margin: float
    excused: str = ""
    verdict: str = NOT_RUN

    @property
    def agrees(self) -> bool | None:
        """Whether the printed numbers support the claim; None where none were printed."""
        return None if self.printed is None else self.favour * self.printed.value > self.by

    @property
    def printed_in_favour(self) -> float:
        """What the printed gap has beyond what is claimed, in margins; NaN without one."""
        gap = self.printed.value if self.printed else math.nan
        return (self.favour * gap - self.by) / (self.margin or 1.0)

    @property
    def in_favour(self) -> dict[int, float]:
        """By seed, what the gap has beyond what is claimed, in margins; positive supports it."""
        unit = self.margin or 1.0
        return {
            seed: (self.favour * gap - self.by) / unit
            for seed, gap in zip(self.seeds, self.gaps, strict=True)
        }

    @property
    def loser(self) -> str | float:
        """The row, or the number, that what is claimed of the gaps speaks against."""
        return self.than if statistics.fmean(self.in_favour.values()) > 0 else self.row

    @property
    def test(self) -> PairedTest:
        """The test of the gaps, in the quantity's unit; there must be one at least."""
        return paired_test(self.gaps, self.margin)

    @property
    def claimed(self) -> PairedTest:
        """The test of `in_favour`, against a margin of 1."""
        return paired_test([*self.in_favour.values()], 1.0)


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and its comparisons, judged together."""

    claim: Claim
    comparisons: tuple[Comparison, ...]

    @property
    def effect(self) -> PairedTest | None:
        """The mean of all comparisons' `in_favour` over the seeds that they share, in margins; None
        where they share none."""
        return _effect(self._run)

    @property
    def verdict(self) -> str:
        """The verdict on the claim as a whole.

        HOLDS if the interval of the effect lies above 0, but ON_AVERAGE if no comparison holds by
        itself, or some does not hold or is more than a margin on the other side; FAILS if it lies
        below 0, or if the effect, or every single one, is shown to be smaller than a margin;
        NOT_RUN without runs; else UNDECIDED. What holds or fails only by comparisons that are
        excused is undecided, as is any claim most of whose comparisons are excused, and one that
        holds without some that were not run.
        """
        if not self._run:
            return NOT_RUN
        verdict = self._verdict(self._run)
        fair = [c for c in self._run if not c.excused]
        few = 2 * len(fair) < len(self._run)
        if few or (len(fair) < len(self._run) and self._verdict(fair) != verdict):
            return UNDECIDED
        missing = len(self._run) < len(self.comparisons)
        return UNDECIDED if missing and verdict in (HOLDS, ON_AVERAGE) else verdict

    @property
    def _run(self) -> list[Comparison]:
        return [comparison for comparison in self.comparisons if comparison.gaps]

    def _verdict(self, comparisons: Sequence[Comparison]) -> str:
        effect = _effect(comparisons)
        if effect is None:
            return UNDECIDED
        verdict = _verdict(self.claim, effect, effect.p_difference, effect.p_equivalence)
        found = {comparison.verdict for comparison in comparisons}
        against = any(comparison.claimed.mean < -1 for comparison in comparisons)
        if verdict != HOLDS or (HOLDS in found and FAILS not in found and not against):
            return verdict
        return FAILS if found == {FAILS} and effect.p_equivalence <= LEVEL else ON_AVERAGE


def _effect(comparisons: Sequence[Comparison]) -> PairedTest | None:
    in_favour = [comparison.in_favour for comparison in comparisons]
    shared = set.intersection(*map(set, in_favour)) if in_favour else set()
    if not shared:
        return None
    means = [statistics.fmean(gaps[seed] for gaps in in_favour) for seed in sorted(shared)]
    return paired_test(means, 1.0)


def _verdict(claim: Claim, test: PairedTest, p_difference: float, p_equivalence: float) -> str:
    """The verdict by a test whose positive values support the claim, and its corrected p-values.

    A gap that is shown to be smaller than the margin refutes a claim of a gap, but not one of a
    gap `by` some number, which it may exceed by as little.
    """
    if p_difference <= LEVEL:
        return HOLDS if test.mean > 0 else FAILS
    return FAILS if p_equivalence <= LEVEL and not claim.by else UNDECIDED


def judged_claim(claim: Claim, comparisons: Sequence[Comparison]) -> JudgedClaim:
    """The claim with the verdicts on its comparisons, corrected for their number (Holm 1979)."""
    run = [c for c in comparisons if c.gaps]
    tests = [c.claimed for c in run]
    different = holm([test.p_difference for test in tests])
    equivalent = holm([test.p_equivalence for test in tests])
    verdicts = {
        id(c): UNDECIDED if c.excused else _verdict(claim, test, *adjusted)
        for c, test, *adjusted in zip(run, tests, different, equivalent, strict=True)
    }
    return JudgedClaim(
        claim, tuple(replace(c, verdict=verdicts.get(id(c), NOT_RUN)) for c in comparisons)
    )


@dataclass(frozen=True)
class Evidence:
    """The data that claims are judged by: rows by name, and the printed numbers.

    conditions: their labels; undertuned: what is said of rows that may want other settings, by
    name; again: by the name of a method, that of the same one with the settings of another search.
    """

    conditions: Sequence[str]
    rows: Mapping[str, Row]
    published: PrintedTable
    undertuned: Mapping[str, str] = field(default_factory=dict)
    again: Mapping[str, str] = field(default_factory=dict)

    def judge(self, claim: Claim, quantities: Sequence[Quantity]) -> JudgedClaim:
        """The claim with the verdicts on its comparisons. quantities: those of the claim."""
        return judged_claim(claim, tuple(self._comparisons(claim, quantities)))

    def gaps(
        self, condition: str, row: str, than: str | float, quantity: Quantity
    ) -> dict[int, float]:
        """The row's value - the other's by seed, for the seeds that both have."""
        ours = self._values(condition, row, quantity)
        theirs = self._others(condition, than, quantity, ours)
        return {seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())}

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
        favour = {"better": quantity.sign, "larger": 1, "smaller": -1}[claim.relation]
        found = Comparison(
            condition=condition,
            row=row,
            than=than,
            quantity=quantity,
            seeds=tuple(gaps),
            gaps=tuple(gaps.values()),
            printed=self.printed_gap(condition, row, than, quantity),
            favour=favour,
            by=claim.by,
            margin=self._margin(condition, row, than, quantity),
        )
        return replace(found, excused=self._excuse(found)) if gaps else found

    def _margin(self, condition: str, row: str, than: str | float, quantity: Quantity) -> float:
        """The margin around the larger of the two values, of which print has no part."""
        ours = self._values(condition, row, quantity.first)
        theirs = self._others(condition, than, quantity.first, ours)
        sizes = [abs(statistics.fmean(values.values())) for values in (ours, theirs) if values]
        return quantity.columns[0].margin.at(max(sizes, default=0.0))

    def _excuse(self, found: Comparison) -> str:
        """Why no verdict on methods follows from a gap: the row that loses may want other settings,
        or the gap is not shown where a method has those of another search."""
        name = str(found.loser)
        if why := self.undertuned.get(self._full_name(found.condition, name)):
            return f"{name} {why}"
        row = self.again.get(found.row, found.row)
        than = self.again.get(str(found.than), found.than)
        if row == than or (row, than) == (found.row, found.than):
            return ""
        gaps = self.gaps(found.condition, row, than, found.quantity)
        beside = replace(found, seeds=tuple(gaps), gaps=tuple(gaps.values()))
        other = row if row != found.row else than
        return f"not shown beside {other}" if gaps and not _agree(found, beside) else ""

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


def _agree(found: Comparison, beside: Comparison) -> bool:
    """Whether a difference that one comparison shows is shown by the other, in the same direction;
    True where it shows none."""
    first, second = found.claimed, beside.claimed
    if first.p_difference > LEVEL:
        return True
    return second.p_difference <= LEVEL and first.mean * second.mean > 0


def evidence(
    conditions: Sequence[str],
    rows: Sequence[Row],
    published: PrintedTable,
) -> Evidence:
    """The evidence in rows; of several variants of a method, the first row counts."""
    first_rows: dict[str, Row] = {}
    for row in rows:
        first_rows.setdefault(row.name, row)
    return Evidence(conditions, first_rows, published)
