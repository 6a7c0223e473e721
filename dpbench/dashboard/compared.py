"""Methods that are compared by a metric: verdicts on pairs of them, and the ranks that follow."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from dpbench.metrics.paired_t import (
    BETTER,
    UNDECIDED,
    WORSE,
    PairedTest,
    Verdict,
    judge,
    paired_test,
)
from dpbench.metrics.registry import parse_name
from dpbench.records.epsilon import EQUAL_BUDGETS

BySeed = Mapping[str, float]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Compared:
    """Methods with the metric by seed of each, and with its epsilon in each task."""

    metric: str
    values: Mapping[str, BySeed]
    epsilons: Mapping[str, Sequence[float]]

    def verdicts(self, pairs: Iterable[Pair]) -> dict[Pair, Verdict]:
        """The verdicts on pairs that are read together, corrected for their number; not on those
        without a test. A method does not win with a larger budget: that is undecided."""
        tests = {pair: test for pair in pairs if (test := self.test(*pair))}
        judged = zip(tests, judge([*tests.values()]), strict=True)
        return {pair: self._at_equal_budgets(pair, verdict) for pair, verdict in judged}

    def against(self, baseline: str) -> dict[str, Verdict]:
        """The verdict on each other method."""
        others = [(method, baseline) for method in self.values if method != baseline]
        return {method: verdict for (method, _), verdict in self.verdicts(others).items()}

    def ranks(self) -> dict[str, tuple[int, int]]:
        """The first and the last rank that each method may have: it is behind those that are shown
        to be better, and ahead of those that are shown to be worse, by all pairs."""
        judged = self.verdicts(combinations(self.values, 2))
        decided = [pair for pair, verdict in judged.items() if verdict == BETTER]
        decided += [pair[::-1] for pair, verdict in judged.items() if verdict == WORSE]
        return {
            method: (
                1 + sum(worse == method for _, worse in decided),
                len(self.values) - sum(better == method for better, _ in decided),
            )
            for method in self.values
        }

    def test(self, method: str, other: str) -> PairedTest | None:
        """The test of a difference paired by seed, positive where the first is better; None without
        a common seed, or where a value is not finite."""
        values, others = self.values[method], self.values[other]
        name = parse_name(self.metric)
        known = name.metric
        pairs = [(value, others[seed]) for seed, value in values.items() if seed in others]
        if known is None or not pairs or not all(math.isfinite(x) for pair in pairs for x in pair):
            return None
        ours, theirs = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
        margin = name.margin.at(known.factor * max(abs(ours), abs(theirs)))
        gaps = [known.factor * (value - other) for value, other in pairs]
        return paired_test(gaps, margin).scaled(known.sign)

    def _at_equal_budgets(self, pair: Pair, verdict: Verdict) -> Verdict:
        if verdict not in (BETTER, WORSE):
            return verdict
        winner, loser = pair if verdict == BETTER else pair[::-1]
        budgets = zip(self.epsilons[winner], self.epsilons[loser], strict=True)
        return UNDECIDED if any(a > EQUAL_BUDGETS * b for a, b in budgets) else verdict
