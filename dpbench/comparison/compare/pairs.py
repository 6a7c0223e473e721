"""Pairs of sides: the test of their difference by seed, and why a verdict on it may not follow.

Without headroom, where there was nothing to win, no method can be shown to gain nothing.
"""

import math
import statistics
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeVar

from dpbench.comparison.compare.side import Budget, BySeed, Side
from dpbench.comparison.compare.verdict import BETTER, WORSE, Doubts, Judged, judge
from dpbench.learning.metrics.metric import Margin
from dpbench.learning.metrics.paired_t import LEVEL, PairedTest, paired_test
from dpbench.learning.metrics.registry import metric_of, parse_name
from dpbench.runs.records.epsilon import EQUAL_BUDGETS
from dpbench.system.grouping import grouped

K = TypeVar("K", bound=Hashable)

FEWER = 2
"""A side had fewer trials than another if it had less than one in this many of them."""

CHANCE = "not shown beside a second search"

TERMS = ("delta", "unit of privacy", "adjacency")
"""The terms that epsilons must share to be compared, in the order of `Terms.comparable`."""

NOTHING_TO_WIN = "nothing to win"
NOT_MEASURED = "headroom not measured"


def gaps_of(ours: BySeed, theirs: BySeed) -> dict[Any, float]:
    """Our value - theirs, for each seed that both have."""
    return {seed: value - theirs[seed] for seed, value in ours.items() if seed in theirs}


def margin_of(ours: BySeed, theirs: BySeed, margin: Margin) -> float:
    """The largest gap that does not matter; a relative margin is a share of the larger mean over
    the seeds that both have."""
    shared = [(value, theirs[seed]) for seed, value in ours.items() if seed in theirs]
    means = [abs(statistics.fmean(side)) for side in zip(*shared, strict=True)]
    return margin.at(max(means, default=0.0))


def difference(one: Side, other: Side, metric: str) -> PairedTest | None:
    """The test of the gaps against the metric's margin, in its unit; None without a common seed."""
    values = one.values, other.values
    gaps = [*gaps_of(*values).values()]
    return paired_test(gaps, margin_of(*values, parse_name(metric).margin)) if gaps else None


def compare(
    pairs: Mapping[K, tuple[Side, Side]], metric: str, second_sides: Sequence[Side] = ()
) -> dict[K, Judged]:
    """The verdicts on pairs of sides that are read together, by the same keys; none without a
    common seed, or by a metric of no direction. second_sides: those of all pairs after another
    search, beside which a verdict must be shown, too. Training without privacy is no method to
    choose, and read apart."""
    families = grouped((one.is_private, (key, (one, other))) for key, (one, other) in pairs.items())
    judged: dict[K, Judged] = {}
    for family in families.values():
        judged |= _read_together(dict(family), metric, second_sides)
    return {key: judged[key] for key in pairs if key in judged}


def _read_together(
    pairs: Mapping[K, tuple[Side, Side]], metric: str, second_sides: Sequence[Side]
) -> dict[K, Judged]:
    known = metric_of(metric)
    if not known.better:
        return {}
    tests, doubts = {}, []
    for key, (one, other) in pairs.items():
        if test := difference(one, other, metric):
            tests[key] = test.scaled(known.sign)
            beside = filter(None, (difference(one, second, metric) for second in second_sides))
            signed = [found.scaled(known.sign) for found in beside]
            doubts.append(beside_second_search(doubts_of(one, other), signed))
    return dict(zip(tests, judge([*tests.values()], doubts), strict=True))


def against(
    sides: Mapping[str, Side], baseline: str, metric: str, second_sides: Sequence[Side] = ()
) -> dict[str, Judged]:
    """The verdicts on each other side beside the baseline."""
    pairs = {name: (side, sides[baseline]) for name, side in sides.items() if name != baseline}
    return compare(pairs, metric, second_sides)


def ranks(sides: Mapping[str, Side], metric: str) -> dict[str, tuple[int, int]]:
    """The first and the last rank that each side may have: it is behind those that are shown to be
    better, and ahead of those that are shown to be worse, by all pairs."""
    judged = compare({p: (sides[p[0]], sides[p[1]]) for p in combinations(sides, 2)}, metric)
    decided = [pair for pair, found in judged.items() if found.verdict == BETTER]
    decided += [pair[::-1] for pair, found in judged.items() if found.verdict == WORSE]
    return {
        name: (
            1 + sum(worse == name for _, worse in decided),
            len(sides) - sum(better == name for better, _ in decided),
        )
        for name in sides
    }


def doubts_of(one: Side, other: Side) -> Doubts:
    """Why a verdict on two sides may not follow, whatever their values are."""
    better, worse = next(_on_loser(other, one), ""), next(_on_loser(one, other), "")
    untuned = one.tuning.trials == 0, other.tuning.trials == 0
    return Doubts(next(_on_both(one, other), ""), better, worse, worse or better, untuned)


def beside_second_search(doubts: Doubts, beside: Sequence[PairedTest]) -> Doubts:
    """The doubts, and that a verdict is not shown beside the other side after another search, by
    the same tests: it may be the luck of a search."""
    shown = (
        all(t.mean > 0 and t.p_difference <= LEVEL for t in beside),
        all(t.mean < 0 and t.p_difference <= LEVEL for t in beside),
        all(t.p_equivalence <= LEVEL for t in beside),
    )
    better, worse, equivalent = ("" if all_show else CHANCE for all_show in shown)
    return doubts._replace(
        better=doubts.better or better,
        worse=doubts.worse or worse,
        equivalent=doubts.equivalent or equivalent,
    )


def _on_both(one: Side, other: Side) -> Iterator[str]:
    if lost := [s.name for s in (one, other) if not all(map(math.isfinite, s.values.values()))]:
        yield f"a run of {' and of '.join(lost)} diverged"
    if other.name == one.tuning.equals or one.name == other.tuning.equals:
        yield "equal by construction"
    is_one_design = one.design and one.design == other.design
    if not is_one_design and (differing := _differing(one.settings, other.settings)):
        yield f"other {', '.join(differing)}"
    for ours, theirs in zip(one.budgets, other.budgets, strict=False):
        yield from _on_terms(ours, theirs)


def _differing(ours: Mapping[str, object], theirs: Mapping[str, object]) -> list[str]:
    """The settings that differ; of a part that one side lacks, or that has several options, its
    name alone."""
    absent, parts = object(), [{key.partition(".")[0] for key in side} for side in (ours, theirs)]
    keys = sorted(ours.keys() | theirs.keys())
    differing = [k for k in keys if ours.get(k, absent) != theirs.get(k, absent)]
    whole = {*differing, *(parts[0] ^ parts[1])}
    named = (part if (part := key.partition(".")[0]) in whole else key for key in differing)
    return [*dict.fromkeys(named)]


def _on_terms(ours: Budget, theirs: Budget) -> Iterator[str]:
    """Why two budgets cannot be compared; training without privacy can be, with any."""
    if not (ours.is_private and theirs.is_private):
        return
    if reasons := [b.epsilon for b in (ours, theirs) if isinstance(b.epsilon, str)]:
        yield f"epsilon: {reasons[0]}"
    elif ours.terms != theirs.terms:
        terms = zip(TERMS, ours.terms, theirs.terms, strict=True)
        yield f"other {', '.join(word for word, a, b in terms if a != b)}"


def _on_loser(loser: Side, winner: Side) -> Iterator[str]:
    pairs = zip(winner.budgets, loser.budgets, strict=False)
    if any(_is_larger(more, less) for more, less in pairs):
        yield f"{winner.name} has the larger epsilon"
    if loser.tuning.flaw:
        yield f"{loser.name} {loser.tuning.flaw}"
    if winner.name == loser.tuning.unsearched:
        yield f"the search of {loser.name} did not try {winner.name}, which it contains"
    trials, others = loser.tuning.trials, winner.tuning.trials
    if trials is not None and others is not None and FEWER * trials < others:
        yield f"fewer trials: {loser.name} {trials}, {winner.name} {others}"


def _is_larger(more: Budget, less: Budget) -> bool:
    if isinstance(more.epsilon, str) or isinstance(less.epsilon, str):
        return False
    return more.epsilon > EQUAL_BUDGETS * less.epsilon


def why_none(
    base: BySeed,
    not_private: Sequence[BySeed],
    others: Sequence[BySeed],
    favour: int,
    margin: float,
) -> str:
    """Why no headroom is shown above a row; "" if it is.

    It is shown if training without privacy, or the best of the other rows, is more than a margin
    ahead, corrected for being selected among its like (Bonferroni). base and rows: the quantity by
    seed; favour: 1 where larger is better, else -1.
    """
    tests = [
        (paired_test([favour * gap - margin for gap in gaps.values()], 0.0), LEVEL / len(rows))
        for rows in (not_private, others)
        for row in rows
        if (gaps := gaps_of(row, base))
    ]
    if not tests:
        return NOT_MEASURED
    is_shown = any(test.mean > 0 and test.p_difference <= level for test, level in tests)
    return "" if is_shown else NOTHING_TO_WIN
