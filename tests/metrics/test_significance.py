import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.metrics.significance import signed_rank

gains = st.lists(st.integers(-5, 5), min_size=1, max_size=7)


def by_hand(gains):
    """P(sum of positive ranks >= observed) over all signs; equal sizes share their mean rank."""
    sizes = [abs(gain) for gain in gains if gain]
    ranks = [sum(other < size for other in sizes) + (sizes.count(size) + 1) / 2 for size in sizes]
    observed = sum(rank for rank, gain in zip(ranks, filter(None, gains), strict=True) if gain > 0)
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in itertools.product([False, True], repeat=len(ranks))
    ]
    return sum(total >= observed for total in sums) / len(sums)


@pytest.mark.slow
@settings(deadline=None)
@given(gains)
def test_p_agrees_with_all_signs_counted_by_hand(values):
    assert signed_rank(values) == pytest.approx(by_hand(values))


@pytest.mark.parametrize("signs", list(itertools.product([-1, 1], repeat=5)))
def test_five_seeds_agree_for_every_choice_of_signs(signs):
    values = [sign * size for sign, size in zip(signs, (1, 2, 3, 4, 5), strict=True)]
    assert signed_rank(values) == pytest.approx(by_hand(values))


def test_five_wins_of_five_are_one_in_32_and_five_losses_1():
    assert signed_rank([0.1, 0.2, 0.3, 0.4, 0.5]) == 1 / 32
    assert signed_rank([-0.1, -0.2, -0.3, -0.4, -0.5]) == 1


def test_no_difference_at_all_is_p_1():
    assert signed_rank([0, 0, 0, 0, 0]) == 1


def test_a_diverged_seed_makes_p_nan():
    assert math.isnan(signed_rank([1, 2, math.nan]))


def test_no_seed_has_no_p():
    assert math.isnan(signed_rank([]))


def test_differences_equal_but_for_floating_point_are_ties():
    assert signed_rank([0.3 - 0.2, 0.6 - 0.5, 0.1 - 0.2]) == by_hand([1, 1, -1])


def test_many_seeds_still_have_a_p():
    assert signed_rank(range(1, 15)) == pytest.approx(2**-14)
