"""What a search of fewer trials would have found."""

import math
from collections.abc import Sequence


def expected_best(values: Sequence[float], count: int) -> float:
    """The expected largest of `count` values drawn without replacement from values [n].

    The unbiased estimate, from n independent trials, of the best of so many (Dodge et al. 2019,
    Show Your Work, in the form of Tang et al. 2020, Showing Your Work Doesn't Always Work). Raises
    ValueError for more than n.
    """
    if not 1 <= count <= len(values):
        raise ValueError(f"{count} of {len(values)} values cannot be drawn.")
    ways = math.comb(len(values), count)
    # The i-th smallest is the largest of those whose others are below it.
    weighted = (math.comb(below, count - 1) * value for below, value in enumerate(sorted(values)))
    return math.fsum(weighted) / ways


def budgets(trials: int) -> list[int]:
    """1, 2, 4, ... up to the number of trials."""
    return [2**k for k in range(trials.bit_length())]
