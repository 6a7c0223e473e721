"""Significance tests over seeds: does one method outperform another?"""

import math
from collections.abc import Sequence

import numpy as np

TIES_EXACT_UP_TO = 13
"""The largest n at which the exact distribution is enumerated in spite of ties."""


def signed_rank(gains: Sequence[float]) -> float:
    """The p-value of the one-sided Wilcoxon signed-rank test that gains [n] are above 0.

    Gains are paired by seed (Esipova et al. 2023, section 6.2). With n seeds no p is below 2^-n:
    1/32 with five. Gains of 0 are left out, and p is 1 if all are 0. p is NaN if any gain is NaN (a
    diverged run must not be dropped from its comparison) or there is none.
    """
    from scipy import stats

    if len(gains) == 0 or np.isnan(gains).any():
        return math.nan
    # Rounded: equal differences may differ slightly in floating point, which would change ranks.
    rounded = np.round(gains, 12)
    nonzero = rounded[rounded != 0]
    if len(nonzero) == 0:
        return 1.0
    tied = len(np.unique(np.abs(nonzero))) < len(nonzero)
    # The tabulated distribution excludes ties; enumerating all 2^n signs allows them.
    method = stats.PermutationMethod() if tied and len(nonzero) <= TIES_EXACT_UP_TO else "auto"
    return float(stats.wilcoxon(nonzero, alternative="greater", method=method).pvalue)
