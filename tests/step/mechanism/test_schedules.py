"""Schedules: where they begin, where they end, and what is no schedule."""

import math
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.step.mechanism.schedules import (
    UNCHANGED,
    Constant,
    Cosine,
    Linear,
    Pieces,
    Schedules,
    Stairs,
    constant,
    run_lengths,
    schedule,
)
from dpbench.system.errors import UserError

SHARES = st.floats(0, 1)
VALUES = st.floats(-10, 10)


@given(VALUES, VALUES, SHARES)
def test_they_begin_and_end_where_they_say_and_stay_between(start, end, progress):
    for made in (Linear(start, end), Cosine(start, end)):
        assert made(0.0) == pytest.approx(start)
        assert made(1.0) == pytest.approx(end, abs=1e-12)
        assert min(start, end) - 1e-9 <= made(progress) <= max(start, end) + 1e-9


def test_schedules_are_half_way_in_the_middle_and_change_where_they_are_told():
    assert Linear(0, 2)(0.25) == 0.5
    assert Cosine(0, 2)(0.5) == pytest.approx(1)
    assert Cosine(0, 2)(0.25) == pytest.approx(1 - math.sqrt(0.5))
    made = Pieces((5.0, 1.0, 2.0), (0.95, 0.99))
    assert [made(p) for p in (0.0, 0.9499, 0.95, 0.98, 0.99, 1.0)] == [5, 5, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("values", "until"), [((1, 2), ()), ((1,), (0.5,)), ((1, 2, 3), (0.9, 0.1))]
)
def test_pieces_that_do_not_fit_are_refused(values, until):
    with pytest.raises(UserError, match="increasing `until` and one more of `values`"):
        Pieces(values, until)


def test_a_number_is_a_constant_recognised_without_enumerating_steps():
    assert schedule("lr", 3) == Constant(3)
    assert schedule("lr", 3)(0.7) == 3
    assert schedule("lr", made := Linear(0, 1)) is made
    assert list(run_lengths(1.0, 10**18)) == [(1.0, 10**18)]
    Schedules(1.0, Constant(2.0), 3.0).check(10**18)
    assert constant(Constant(2.0)) == constant(2.0) == 2.0
    assert constant(Linear(1.0, 1.0)) is None


@pytest.mark.parametrize("value", ["fast", None, True, math.nan, math.inf])
def test_anything_else_is_refused_by_name(value):
    with pytest.raises(UserError, match=r"^lr must be a number or a schedule"):
        schedule("lr", value)


def test_stairs_hold_a_schedule_at_where_each_part_begins():
    made = Stairs(Linear(0, 4), 4)
    assert [made(p) for p in (0.0, 0.2499, 0.25, 0.74, 0.75, 1.0)] == [0, 0, 1, 2, 3, 3]
    assert {Stairs(Linear(0, 1), 100)(s / 100) for s in range(100)} == {s / 100 for s in range(100)}


@pytest.mark.parametrize("number", [0, 1.5, True])
def test_stairs_need_a_number_of_steps(number):
    with pytest.raises(UserError, match="the number of stairs must be a whole number"):
        Stairs(Linear(0, 1), number)


def test_schedules_are_factors_that_may_not_vary_by_themselves():
    made = Schedules(2.0, Linear(1, 0), Constant(3))
    assert (made.bound_at(0.5), made.lr_at(0.5), made.noise_at(0.5)) == (2, 0.5, 3)
    assert (UNCHANGED.bound_at(0.3), UNCHANGED.lr_at(0.3), UNCHANGED.noise_at(0.3)) == (1, 1, 1)
    calls = count(1)
    with pytest.raises(UserError, match=r"schedule\.noise gives other values when it is asked"):
        Schedules(1.0, 1.0, lambda progress: float(next(calls))).check(10)


@pytest.mark.parametrize("name", ["bound", "lr", "noise"])
def test_invalid_schedules_are_refused_by_name(name):
    with pytest.raises(UserError, match=rf"^schedule\.{name} must be a number or a schedule"):
        Schedules(**{"bound": 1.0, "lr": 1.0, "noise": 1.0, name: "falling"})


@pytest.mark.parametrize("name", ["bound", "lr", "noise"])
def test_factors_stay_positive_but_a_learning_rate_may_rest(name):
    def falling(end):
        return Schedules(**{"bound": 1.0, "lr": 1.0, "noise": 1.0, name: Pieces((1, end), (0.5,))})

    falling(0.1).check(10)
    with pytest.raises(
        UserError, match=rf"schedule\.{name} must stay a positive number, and reaches -1"
    ):
        falling(-1).check(10)
    if name == "lr":
        falling(0).check(10)
    else:
        with pytest.raises(UserError, match="reaches 0"):
            falling(0).check(10)


@pytest.mark.parametrize("late", [math.nan, math.inf, "x", None, 1e300])
@pytest.mark.parametrize("name", ["bound", "lr", "noise"])
def test_factors_of_own_schedules_are_numbers_until_the_last_step(name, late):
    own = {"bound": 1.0, "lr": 1.0, "noise": 1.0, name: lambda progress: late if progress else 1.0}
    with pytest.raises(UserError, match=rf"schedule\.{name} must stay a positive number, and"):
        Schedules(**own).check(10)


def test_stretches_are_the_values_of_all_steps_in_their_order():
    falling = Stairs(Linear(1.0, 0.5), 4)
    for it in (2.0, Constant(3.0), Linear(1.0, 2.0), Pieces((1.0, 2.0, 1.0), (0.3, 0.9)), falling):
        found = [v for v, times in run_lengths(it, 30) for _ in range(times)]
        at = it if callable(it) else Constant(it)
        assert found == [at(made / 30) for made in range(30)]
    assert [times for _, times in run_lengths(falling, 30)] == [8, 7, 8, 7]
