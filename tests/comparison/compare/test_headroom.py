"""Whether there was anything to win."""

import numpy as np
import pytest

from dpbench.comparison.compare.pairs import NOT_MEASURED, NOTHING_TO_WIN, why_none

SEEDS = range(8)


def row(mean, turn=1):
    return {seed: mean + turn * (seed - 3.5) / 20 for seed in SEEDS}


BASE = row(80.0)


@pytest.mark.parametrize(
    ("gain", "reason"), [(1.5, ""), (0.9, NOTHING_TO_WIN), (-5, NOTHING_TO_WIN)]
)
def test_training_without_privacy_shows_it_if_more_than_a_margin_ahead(gain, reason):
    free = row(80.0 + gain, 0.5)
    assert why_none(BASE, [free], [], 1, 1.0) == reason
    lower = {seed: -value for seed, value in free.items()}
    base = {seed: -value for seed, value in BASE.items()}
    assert why_none(base, [lower], [], -1, 1.0) == reason, "where less is better"


def test_without_any_other_row_or_of_many_equal_ones_there_is_none():
    assert why_none(BASE, [], [], 1, 1.0) == NOT_MEASURED
    assert why_none(BASE, [{99: 90.0}], [], 1, 1.0) == NOT_MEASURED
    # Uncorrected, one of twenty rows that are a margin ahead would show more in two of five.
    generator, shown = np.random.default_rng(0), 0
    for _ in range(300):
        draws = generator.normal(size=(21, len(SEEDS)))
        base, *others = (dict(zip(SEEDS, values, strict=True)) for values in draws)
        ahead = [{seed: value + 1.0 for seed, value in other.items()} for other in others]
        shown += why_none(base, [], ahead, 1, 1.0) == ""
    assert shown / 300 <= 0.05 + 3 * np.sqrt(0.05 / 300)
