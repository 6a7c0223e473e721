"""Significance tests over seeds: does one method outperform another?"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dpbench.metrics.registry import Better

TIES_EXACT_UP_TO = 13
"""The largest n at which the exact distribution is enumerated in spite of ties."""


class Significance(NamedTuple):
    """A one-sided p-value and its number of seeds."""

    p: float
    n: int


def signed_rank(
    ours: Mapping[int, float], reference: Mapping[int, float], better: Better
) -> Significance:
    """One-sided Wilcoxon signed-rank test that `ours` is better than `reference`.

    Both map seeds to a metric and are paired over common seeds (Esipova et al. 2023, section 6.2).
    With n seeds no p is below 2^-n: 1/32 with five. Seeds without a difference are left out, and p
    is 1 if all are. p is NaN if any seed has NaN (a diverged run must not be dropped from its
    comparison) or no seed is common.
    """
    seeds = sorted(ours.keys() & reference.keys())
    sign = {"higher": 1.0, "lower": -1.0}[better]
    gains = np.array([sign * (ours[seed] - reference[seed]) for seed in seeds])
    # Rounded: equal differences may differ slightly in floating point, which would change ranks.
    return Significance(_p_value(gains.round(12)), len(seeds))


def _p_value(gains: np.ndarray) -> float:
    """P(sum of positive ranks at least this large) if the sign of each gain is a fair coin."""
    from scipy import stats

    if len(gains) == 0 or np.isnan(gains).any():
        return math.nan
    nonzero = gains[gains != 0]
    if len(nonzero) == 0:
        return 1.0
    tied = len(np.unique(np.abs(nonzero))) < len(nonzero)
    # The tabulated distribution excludes ties; enumerating all 2^n signs allows them.
    method = stats.PermutationMethod() if tied and len(nonzero) <= TIES_EXACT_UP_TO else "auto"
    return float(stats.wilcoxon(nonzero, alternative="greater", method=method).pvalue)
