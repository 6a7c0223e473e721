"""Means with intervals by Student's t, and differences that are paired by seed."""

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

CONFIDENCE = 0.95
"""The confidence of every interval, of this and other kinds, unless one is asked for."""

TOO_LARGE = 1e150
"""Values of which the squares may overflow are as good as infinite."""


class Estimate(NamedTuple):
    """A mean over n values, and half the width of its interval; None for fewer than two values."""

    mean: float
    half: float | None
    n: int


def quantile(degrees: int, probability: float) -> float:
    """A quantile of Student's t."""
    from scipy.special import stdtrit  # scipy.stats takes half a second to import

    return float(stdtrit(degrees, probability))


@functools.cache
def two_sided(degrees: int) -> float:
    """The quantile of Student's t that bounds intervals of CONFIDENCE."""
    return quantile(degrees, (1 + CONFIDENCE) / 2)


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean of the values; None if there are none, or if one is not finite, or too large."""
    n = len(values)
    if n == 0 or not all(abs(value) < TOO_LARGE for value in values):
        return None
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, n)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return Estimate(mean, two_sided(n - 1) * math.sqrt(variance / n), n)


def standard_deviation(values: Sequence[float]) -> float:
    """The sample standard deviation (n - 1); NaN for fewer than two or non-finite values."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return math.nan
    return statistics.stdev(values)


def paired(ours: Mapping[str, float], reference: Mapping[str, float]) -> Estimate | None:
    """The mean difference over common seeds; both map seeds to a metric."""
    return estimate([ours[seed] - reference[seed] for seed in ours if seed in reference])
