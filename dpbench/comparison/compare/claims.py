"""Whether runs bear out a claim that some rows are ahead of others, by symmetric words."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dpbench.comparison.compare.pairs import CHANCE, beside_second_search
from dpbench.comparison.compare.side import BySeed
from dpbench.comparison.compare.verdict import (
    BETTER,
    NO_DOUBTS,
    UNDECIDED,
    WORSE,
    Doubts,
    verdict_of,
)
from dpbench.learning.metrics.paired_t import LEVEL, PairedTest, holm, paired_test

HOLDS = "holds"
WITHIN = "holds within a margin"
NO_DIFFERENCE = "no difference"
FAILS = "fails"
NOT_RUN = "not run"

ON_AVERAGE = " on average"
"""After a word where some comparison points the other way."""

GAIN = (HOLDS, WITHIN)
"""The words for a gain that is shown."""

INCOMPLETE = "some of its comparisons were not run"


@dataclass(frozen=True)
class Gap:
    """One comparison of a claim.

    in_favour: by seed, what the gap has beyond what is claimed, in margins, positive where it
    supports the claim; margin: what does not matter of it, 0 where a gap of some size is claimed,
    which another may exceed by as little; beside: as in_favour, beside the other row after another
    search, empty without one; no_headroom: why nothing can be said of a row that does not win, ""
    if something can.
    """

    in_favour: BySeed
    margin: float = 1.0
    doubts: Doubts = NO_DOUBTS
    beside: BySeed = field(default_factory=dict)
    no_headroom: str = ""

    @property
    def test(self) -> PairedTest:
        """The test of `in_favour`; there must be one seed at least."""
        return paired_test([*self.in_favour.values()], self.margin)

    def reason(self, word: str, doubts: Doubts) -> str:
        """Why a word does not follow; "" if it does."""
        of = {
            **dict.fromkeys(GAIN, doubts.better),
            NO_DIFFERENCE: doubts.equivalent or self.no_headroom,
            FAILS: doubts.worse or self.no_headroom,
        }
        return doubts.any or of.get(word, "")

    def judge(self, p_difference: float, p_equivalence: float) -> tuple[str, str]:
        """The word for this comparison alone, by corrected p-values, and why it is undecided."""
        doubts = self.doubts
        if self.beside:
            second = paired_test([*self.beside.values()], self.margin)
            doubts = beside_second_search(doubts, [second])
        word = _word(self.test, p_difference, p_equivalence)
        reason = self.reason(word, doubts)
        return (UNDECIDED, reason) if reason else (_plain(word, [doubts]), "")


class Ruling(NamedTuple):
    """The word for a claim, why it is undecided, whether the word is about the average only, since
    some comparison points the other way, and the effect that it rests on; None without runs."""

    word: str
    reason: str = ""
    on_average: bool = False
    effect: PairedTest | None = None

    @property
    def verdict(self) -> str:
        """`holds`, `fails on average`."""
        return f"{self.word}{ON_AVERAGE}" if self.on_average else self.word


def judge_claim(gaps: Sequence[Gap | None]) -> tuple[Ruling, list[tuple[str, str]]]:
    """The ruling on a claim, and the word for each comparison with why it is undecided.

    gaps: of the comparisons, None for one that was not run.
    """
    run = [gap for gap in gaps if gap]
    different = iter(holm([gap.test.p_difference for gap in run]))
    equivalent = iter(holm([gap.test.p_equivalence for gap in run]))
    words = [gap.judge(next(different), next(equivalent)) if gap else (NOT_RUN, "") for gap in gaps]
    return _rule(run, [word for word, _ in words], len(run) == len(gaps)), words


def _rule(gaps: Sequence[Gap], words: Sequence[str], complete: bool) -> Ruling:
    """The ruling on a claim by its effect: the mean of all comparisons' gaps in margins, over the
    seeds that they share.

    The word must also follow from those comparisons alone of which nothing speaks against it,
    which must be half of all at least, and beside the rows of a second search; a gain is shown by
    comparisons that were all run. words: of the comparisons.
    """
    effect = _effect(gaps)
    if effect is None:
        return Ruling(UNDECIDED if gaps else NOT_RUN)
    word = _word_of(effect)
    if word == UNDECIDED:
        return Ruling(word, _common(gap.doubts.any for gap in gaps), effect=effect)
    reasons = [gap.reason(word, gap.doubts) for gap in gaps]
    sound = [gap for gap, reason in zip(gaps, reasons, strict=True) if not reason]
    beside = [replace(gap, in_favour=gap.beside or gap.in_favour) for gap in gaps]
    if 2 * len(sound) < len(gaps) or not _same(word, _word_of(_effect(sound))):
        return Ruling(UNDECIDED, _common(reasons), effect=effect)
    if not _same(word, _word_of(_effect(beside))):
        return Ruling(UNDECIDED, CHANCE, effect=effect)
    if word in GAIN and not complete:
        return Ruling(UNDECIDED, INCOMPLETE, effect=effect)
    word = _plain(word, [gap.doubts for gap in gaps])
    return Ruling(word, "", _is_divided(word, gaps, words), effect)


def _word(test: PairedTest, p_difference: float, p_equivalence: float) -> str:
    """The word by a test whose positive values support the claim."""
    gains = test.mean > 0 and p_difference <= LEVEL
    verdict = verdict_of(test, p_difference, p_equivalence)
    words = {BETTER: HOLDS, WORSE: FAILS, UNDECIDED: UNDECIDED}
    return words.get(verdict, WITHIN if gains else NO_DIFFERENCE)


def _word_of(effect: PairedTest | None) -> str:
    if effect is None:
        return UNDECIDED
    return _word(effect, effect.p_difference, effect.p_equivalence)


def _plain(word: str, doubts: Sequence[Doubts]) -> str:
    """The word; a gain that may be larger after another search is not said to be small."""
    return HOLDS if word == WITHIN and any(d.equivalent for d in doubts) else word


def _same(word: str, other: str) -> bool:
    return word == other or {word, other} == {*GAIN}


def _effect(gaps: Sequence[Gap]) -> PairedTest | None:
    shared = set.intersection(*(set(gap.in_favour) for gap in gaps)) if gaps else set()
    if not shared:
        return None
    means = [statistics.fmean(gap.in_favour[seed] for gap in gaps) for seed in shared]
    return paired_test(means, gaps[0].margin)


def _common(reasons: Iterable[str]) -> str:
    counts = Counter(filter(None, reasons))
    return counts.most_common(1)[0][0] if counts else ""


def _is_divided(word: str, gaps: Sequence[Gap], words: Sequence[str]) -> bool:
    """Whether some comparison is shown to point the other way, or lies a margin beyond."""
    means = [gap.test.mean for gap in gaps]
    gained = any(w in GAIN for w in words) or any(mean > 1 for mean in means)
    lost = FAILS in words or any(mean < -1 for mean in means)
    return {FAILS: gained, NO_DIFFERENCE: gained or lost}.get(word, lost)
