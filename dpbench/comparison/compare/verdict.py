"""Verdicts on comparisons that are read together, unless there is a reason why none follows."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from dpbench.learning.metrics.paired_t import LEVEL, PairedTest, holm

Verdict = Literal["better", "worse", "equivalent", "undecided"]
BETTER: Verdict = "better"
WORSE: Verdict = "worse"
EQUIVALENT: Verdict = "equivalent"
UNDECIDED: Verdict = "undecided"

UNTUNED = "untuned"


class Doubts(NamedTuple):
    """Why no verdict follows at all, and why the first side may not be called better, worse or
    equivalent; "" where it may. None depends on the gap. untuned: whether no search chose the
    setting of the first side, and of the second."""

    any: str = ""
    better: str = ""
    worse: str = ""
    equivalent: str = ""
    untuned: tuple[bool, bool] = (False, False)

    def about(self, verdict: Verdict) -> str:
        """Why a verdict does not follow, though the tests show it; "" if it does."""
        of = {BETTER: self.better, WORSE: self.worse, EQUIVALENT: self.equivalent}
        return self.any or of.get(verdict, "")

    def remark(self, verdict: Verdict) -> str:
        """What is said beside a verdict: that no search chose the setting that lost."""
        lost = {WORSE: self.untuned[0], BETTER: self.untuned[1]}
        return UNTUNED if lost.get(verdict) else ""


NO_DOUBTS = Doubts()


def reasoned(verdict: str, reason: str) -> str:
    """`worse`, `undecided: nothing to win`."""
    return ": ".join(filter(None, (verdict, reason)))


class Judged(NamedTuple):
    """A test, its verdict, and the reason why none follows; "" where more seeds may decide."""

    test: PairedTest
    verdict: Verdict
    reason: str = ""
    remark: str = ""

    @property
    def words(self) -> str:
        """`better`, `worse, untuned`, `undecided: other epochs`."""
        return ", ".join(filter(None, (reasoned(self.verdict, self.reason), self.remark)))


def judge(tests: Sequence[PairedTest], doubts: Sequence[Doubts] = ()) -> list[Judged]:
    """The verdicts on comparisons that are read together, undecided where in doubt.

    Better or worse where the p of a difference, and equivalent where that of equivalence, is at
    most LEVEL after Holm's correction. A difference that is shown, and shown to be smaller than the
    margin, is no reason to prefer one method: equivalent.
    """
    different = holm([test.p_difference for test in tests])
    equivalent = holm([test.p_equivalence for test in tests])
    judged = []
    for test, doubt, *adjusted in zip(
        tests, doubts or [NO_DOUBTS] * len(tests), different, equivalent, strict=True
    ):
        shown = verdict_of(test, *adjusted)
        reason = doubt.about(shown)
        verdict = UNDECIDED if reason else shown
        judged.append(Judged(test, verdict, reason, doubt.remark(verdict)))
    return judged


def verdict_of(test: PairedTest, p_difference: float, p_equivalence: float) -> Verdict:
    """The verdict by corrected p-values, whatever doubts there are."""
    if p_equivalence <= LEVEL:
        return EQUIVALENT
    if p_difference <= LEVEL:
        return BETTER if test.mean > 0 else WORSE
    return UNDECIDED
