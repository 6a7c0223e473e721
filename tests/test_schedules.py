"""Schedules: where they begin, where they end, and what is no schedule."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.errors import UserError
from dpbench.schedules import Constant, Cosine, Linear, Pieces, schedule

SHARES = st.floats(0, 1)
VALUES = st.floats(-10, 10)


@given(VALUES, VALUES, SHARES)
def test_they_begin_and_end_where_they_say_and_stay_between(start, end, progress):
    for made in (Linear(start, end), Cosine(start, end)):
        assert made(0.0) == pytest.approx(start)
        assert made(1.0) == pytest.approx(end, abs=1e-12)
        assert min(start, end) - 1e-9 <= made(progress) <= max(start, end) + 1e-9


def test_they_are_half_way_in_the_middle_and_a_cosine_starts_slowly():
    assert Linear(0, 2)(0.25) == 0.5
    assert Cosine(0, 2)(0.5) == pytest.approx(1)
    assert Cosine(0, 2)(0.25) == pytest.approx(1 - math.sqrt(0.5))


def test_pieces_change_where_they_are_told_and_not_before():
    made = Pieces((5.0, 1.0, 2.0), (0.95, 0.99))
    assert [made(p) for p in (0.0, 0.9499, 0.95, 0.98, 0.99, 1.0)] == [5, 5, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("values", "until"), [((1, 2), ()), ((1,), (0.5,)), ((1, 2, 3), (0.9, 0.1))]
)
def test_pieces_that_do_not_fit_are_refused(values, until):
    with pytest.raises(UserError, match="rising `until` and one more of `values`"):
        Pieces(values, until)


def test_a_number_is_a_constant_and_a_schedule_is_itself():
    assert schedule("lr", 3) == Constant(3)
    assert schedule("lr", 3)(0.7) == 3
    assert schedule("lr", made := Linear(0, 1)) is made


@pytest.mark.parametrize("value", ["fast", None, True, math.nan, math.inf])
def test_anything_else_is_refused_by_name(value):
    with pytest.raises(UserError, match=r"^lr must be a number or a schedule"):
        schedule("lr", value)
