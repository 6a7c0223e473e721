"""Whether one method beats another over seeds by more than chance."""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

Better = Literal["higher", "lower"]
TIES_EXACT_UP_TO = 13


class Significance(NamedTuple):
    """A one-sided p-value and the number of seeds that it rests on."""

    p: float
    n: int


def signed_rank(
    ours: Mapping[int, float], reference: Mapping[int, float], better: Better
) -> Significance:
    """One-sided Wilcoxon signed-rank test that `ours` is better than `reference`.

    Both map a seed to a metric and are paired over the seeds that they share. The test of
    Esipova et al. 2023, section 6.2. With n seeds no p is below 2^-n: 1/32 with five. Seeds that
    do not differ are left out, and p is 1 if none does. p is NaN where a seed has NaN (a diverged
    run must not be left out of its own comparison) or where no seed is shared.
    """
    seeds = sorted(ours.keys() & reference.keys())
    sign = {"higher": 1.0, "lower": -1.0}[better]
    gains = np.array([sign * (ours[seed] - reference[seed]) for seed in seeds])
    # Equal differences come out of floating point a little unequal, and ranks would notice.
    return Significance(_p_value(gains.round(12)), len(seeds))


def _p_value(gains: np.ndarray) -> float:
    """P(positive ranks sum to this or more) when each gain's sign is a fair coin."""
    from scipy import stats

    if len(gains) == 0 or np.isnan(gains).any():
        return math.nan
    moved = gains[gains != 0]
    if len(moved) == 0:
        return 1.0
    tied = len(np.unique(np.abs(moved))) < len(moved)
    # The tabulated law knows no ties; going through all 2^n signs does, for as long as it can.
    method = stats.PermutationMethod() if tied and len(moved) <= TIES_EXACT_UP_TO else "auto"
    return float(stats.wilcoxon(moved, alternative="greater", method=method).pvalue)
