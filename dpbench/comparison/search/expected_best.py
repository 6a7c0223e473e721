"""What a search of fewer trials would have found."""

import math
import operator
from collections.abc import Sequence


def expected_best(
    values: Sequence[float], count: int, scores: Sequence[float] | None = None
) -> float:
    """The expected value of the best of `count` trials drawn without replacement from n: of the one
    with the largest of scores [n], or without scores the largest of values [n].

    The unbiased estimate, from n independent trials, of the best of so many (Dodge et al. 2019,
    Show Your Work, in the form of Tang et al. 2020, Showing Your Work Doesn't Always Work). Raises
    ValueError for more than n.
    """
    ranked = [value for _, value in sorted(zip(scores or values, values, strict=True))]
    return math.fsum(map(operator.mul, shares(len(values), count), ranked))


def shares(number: int, count: int) -> list[float]:
    """The share of the draws of `count` of so many values whose largest is the smallest value, the
    second smallest, and so on; ValueError as for `expected_best`."""
    if not 1 <= count <= number:
        raise ValueError(f"{count} of {number} values cannot be drawn.")
    ways = math.comb(number, count)
    # The i-th smallest is the largest of those whose others are below it.
    return [math.comb(below, count - 1) / ways for below in range(number)]


def budgets(trials: int) -> list[int]:
    """1, 2, 4, ... up to the number of trials."""
    return [2**k for k in range(trials.bit_length())]
