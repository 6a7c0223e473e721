"""How an epsilon is written."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.records.epsilon import (
    NO_PROOF,
    NOT_COMPUTED,
    NOT_PRIVATE,
    TOO_LITTLE_NOISE,
    epsilon_or_reason,
    rounded_down,
    rounded_up,
)


@given(st.floats(0, 1e6), st.integers(0, 4))
def test_a_written_bound_is_a_bound(epsilon, digits):
    # Of the shortest decimal of the float: 1.1 is 1.1.
    value = Fraction(repr(epsilon))
    up, down = (Fraction(write(epsilon, digits)) for write in (rounded_up, rounded_down))
    assert down <= value <= up
    if value >= Fraction(1, 10**digits):
        assert up - down in (0, Fraction(1, 10**digits))
    else:
        assert down == 0
        assert up - value <= max(value / 10, Fraction(1, 10**6))


@pytest.mark.parametrize(
    ("epsilon", "up", "down"),
    [
        (0.00072, "0.00072", "0.00"),
        (0.0012345, "0.0013", "0.00"),
        (0.0101, "0.02", "0.01"),
        (2.994, "3.00", "2.99"),
        (8.0, "8.00", "8.00"),
        (1.1, "1.10", "1.10"),
        (1e-9, "0.000001", "0.00"),
    ],
)
def test_two_decimals_are_written_and_more_of_a_small_bound(epsilon, up, down):
    assert (rounded_up(epsilon), rounded_down(epsilon)) == (up, down)


def test_what_is_not_finite_is_named():
    assert [rounded_up(value) for value in (math.inf, math.nan)] == ["inf", "nan"]


@pytest.mark.parametrize(
    ("guarantee", "value", "expected"),
    [
        ("proven", 2.5, 2.5),
        ("approximate", 2.5, 2.5),
        ("claimed", 2.5, 2.5),
        ("none", 2.5, NO_PROOF),
        ("none", math.inf, NOT_PRIVATE),
        ("proven", math.inf, TOO_LITTLE_NOISE),
        ("proven", math.nan, NOT_COMPUTED),
        ("proven", -1.0, NOT_COMPUTED),
        ("proven", None, NOT_COMPUTED),
        ("proven", "2.5", NOT_COMPUTED),
        ("proven", True, NOT_COMPUTED),
    ],
)
def test_what_is_shown_in_place_of_epsilon(guarantee, value, expected):
    assert epsilon_or_reason({"guarantee": guarantee, "rdp": value}, "rdp") == expected
