"""Student's t-tests on differences that are paired by seed, and Holm's correction for several."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpbench.learning.metrics.students_t import quantile

LEVEL = 0.05
"""The rate of wrong verdicts of each kind, over all comparisons that are judged together."""

POWER = 0.8
"""How often the smallest difference of a comparison is shown."""

MOST_SEEDS = 1000
"""The largest number of seeds that is proposed to decide a comparison."""


@dataclass(frozen=True)
class PairedTest:
    """Student's t-tests on n differences paired by seed, against 0 and against a margin.

    Where all differences are equal their deviation says nothing, as the accuracy on a small test
    set has few values; there it is the sign test, whose p is at least 2^-n.

    mean: of the differences, of which positive ones are better; deviation: their sample standard
    deviation, NaN for fewer than two or non-finite differences; margin: the largest difference that
    does not matter, at least 0; mean, deviation and margin in one unit.
    """

    mean: float
    deviation: float
    n: int
    margin: float

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.deviation / math.sqrt(self.n)

    @property
    def is_possible(self) -> bool:
        """Whether there are two differences at least, all of them finite."""
        return math.isfinite(self.deviation)

    @property
    def p_difference(self) -> float:
        """Two-sided p of the hypothesis that the methods are equal; 1 where no test is possible."""
        return min(1.0, 2 * self._tail(abs(self.mean)))

    @property
    def p_equivalence(self) -> float:
        """p of the hypothesis that they differ by the margin or more, as the larger of two
        one-sided tests (TOST, Schuirmann 1987); 1 where no test is possible."""
        return self._tail(self.margin - abs(self.mean))

    def interval(self, confidence: float = 1 - LEVEL) -> tuple[float, float]:
        """The confidence interval of the mean; infinite for one difference, and for equal ones that
        are too few for the sign test; NaN if one is not finite."""
        if not math.isfinite(self.mean):
            return math.nan, math.nan
        if not self.is_possible or (self.deviation == 0 and 2 * 0.5**self.n > 1 - confidence):
            return -math.inf, math.inf
        half = quantile(self.n - 1, (1 + confidence) / 2) * self.error
        return self.mean - half, self.mean + half

    def smallest_difference(self, level: float = LEVEL) -> float:
        """The true difference that as many seeds show at that level in POWER of cases."""
        if not self.is_possible:
            return math.inf
        shown, missed = (quantile(self.n - 1, q) for q in (1 - level / 2, POWER))
        return (shown + missed) * self.error

    def power(self, n: int, level: float = LEVEL) -> float:
        """The probability that n seeds decide it, if mean and deviation are the true ones."""
        if self.deviation == 0:
            test = replace(self, n=n)
            return float(min(test.p_difference, test.p_equivalence) <= level)
        error, degrees = self.deviation / math.sqrt(n), n - 1
        two_sided, one_sided = (quantile(degrees, 1 - level / k) for k in (2, 1))
        shift = abs(self.mean) / error
        different = 1 - _below(degrees, shift, two_sided) + _below(degrees, shift, -two_sided)
        low, high = ((abs(self.mean) + side * self.margin) / error for side in (-1, 1))
        equivalent = _below(degrees, low, -one_sided) - _below(degrees, high, one_sided)
        return max(different, equivalent)

    def seeds_needed(self, power: float, level: float = LEVEL) -> int | None:
        """The least number of seeds that decide it with that probability; None above MOST_SEEDS, or
        where no test is possible."""
        if not self.is_possible or self.power(MOST_SEEDS, level) < power:
            return None
        low, high = 1, MOST_SEEDS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.power(middle, level) >= power else (middle, high)
        return high

    def scaled(self, factor: float) -> "PairedTest":
        """The test of differences in another unit, and with the sign that makes positive better."""
        return replace(
            self,
            mean=factor * self.mean,
            deviation=abs(factor) * self.deviation,
            margin=abs(factor) * self.margin,
        )

    def _tail(self, distance: float) -> float:
        if not self.is_possible:
            return 1.0
        if self.error == 0:
            return 0.5**self.n if distance > 0 else 1.0
        from scipy.special import stdtr  # scipy.stats takes half a second to import

        return float(stdtr(self.n - 1, -distance / self.error))


def paired_test(differences: Sequence[float], margin: float) -> PairedTest:
    """The test of at least one difference [n]. Differences are rounded to twelve decimals, so that
    rounding errors of equal values are 0."""
    values = np.round(np.asarray(differences, dtype=float), 12)
    finite = np.isfinite(values).all()
    deviation = float(values.std(ddof=1)) if len(values) > 1 and finite else math.nan
    return PairedTest(float(values.mean()) if finite else math.nan, deviation, len(values), margin)


def holm(p: Sequence[float]) -> list[float]:
    """The p-values corrected for being several (Holm 1979), in the same order.

    The k-th smallest of m is multiplied by m - k + 1, and none is below a smaller one's.
    """
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p, dtype=float)[order] * np.arange(len(p), 0, -1)
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return corrected.tolist()


def _below(degrees: int, shift: float, bound: float) -> float:
    from scipy.special import nctdtr

    probability = float(nctdtr(degrees, shift, bound))
    # It underflows to NaN far out in a tail.
    return float(shift < bound) if math.isnan(probability) else probability
