"""Every check takes what it should, and refuses all else in one sentence that names it."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from dpbench.learning.data.dataset import Dataset
from dpbench.learning.data.digits import Digits
from dpbench.step.mechanism.schedules import Constant, Linear
from dpbench.system.errors import UserError, nearest
from dpbench.system.validate import (
    LARGEST,
    MAX_INTEGER,
    SMALLEST,
    Count,
    Fraction,
    Positive,
    Share,
    boolean,
    fits,
    fraction,
    integer,
    number,
    one_of,
    path_of,
    positive,
    quoted,
    spelled_integer,
    typed,
)

NO_NUMBERS = [True, False, None, "1", "", [1], {}, math.nan, math.inf, -math.inf, 1e308, 10**5000]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: quoted(value)[:12])
@pytest.mark.parametrize("check", [number, positive, fraction, integer])
def test_every_check_of_numbers_refuses_other_types(check, value):
    with pytest.raises(UserError, match=r"^the setting must be .*, got .*\.$") as told:
        check("the setting", value)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (number, [0, -1.5, LARGEST, -LARGEST, 1e-300]),
        (positive, [1, 0.5, LARGEST, SMALLEST]),
        (fraction, [0.5, 1e-300, 1 - 1e-16]),
        (integer, [1, 2, MAX_INTEGER]),
    ],
)
def test_a_valid_number_is_returned_unchanged(check, values):
    for value in values:
        assert check("the setting", value) is value


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (lambda w, v: number(w, v, least=0), -1e-9),
        (lambda w, v: number(w, v, 0, 10), 10.1),
        (positive, 0),
        (positive, -1),
        (positive, SMALLEST / 2),
        (fraction, 0),
        (fraction, 1),
        (lambda w, v: fraction(w, v, zero=True), 1.0),
        (lambda w, v: fraction(w, v, one=True), 0.0),
        (integer, 0),
        (integer, 1.0),
        (integer, MAX_INTEGER + 1),
        (lambda w, v: integer(w, v, 0, 9), 10),
    ],
)
def test_numbers_outside_the_bounds_are_refused(check, value):
    with pytest.raises(UserError, match=r"^the setting must be a"):
        check("the setting", value)


def test_ends_of_a_range_and_only_booleans_are_accepted():
    assert fraction("x", 0, zero=True) == 0
    assert fraction("x", 1, one=True) == 1
    assert integer("x", 0, least=0) == 0
    assert boolean("x", False) is False
    for value in (0, 1, "true", None):
        with pytest.raises(UserError, match="x must be true or false"):
            boolean("x", value)


def test_an_unknown_name_is_refused_with_the_nearest_ones():
    assert one_of("x", "dpsgd", ["dpsgd", "sgd"]) == "dpsgd"
    for value in ("dpgsd", None, ["dpsgd"], "d" * 10**6):
        with pytest.raises(UserError, match=r"^x=.* is unknown: ") as told:
            one_of("x", value, ["dpsgd", "sgd"])
        assert len(str(told.value)) < 200


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lr", "did you mean optimizer.lr?"),
        ("DPSGD", "did you mean dpsgd?"),
        ("table4", "did you mean Mine_table4?"),
        ("opt", "choose from Mine_table4, dpsgd, optimizer.lr, seed."),
    ],
)
def test_parts_of_a_name_and_other_cases_are_near(name, hint):
    assert nearest(name, ["optimizer.lr", "dpsgd", "Mine_table4", "seed"]) == hint


def test_digits_are_parsed_unless_there_are_too_many():
    assert spelled_integer("007") == 7
    for text in ("-1", "1.0", "", "9" * 5000, "²"):
        with pytest.raises(UserError, match="x must be a whole number"):
            integer("x", spelled_integer(text))


@pytest.mark.parametrize(
    ("hint", "fitting", "others"),
    [
        (float, [0, 1.5, -1], [True, "1", None, math.nan, 1e300, 10**30, [1.0]]),
        (int, [0, -3, MAX_INTEGER], [True, 1.0, "1", MAX_INTEGER + 1]),
        (bool, [True, False], [0, 1, "true", None]),
        (str, ["", "x"], [None, 1, ["x"]]),
        (float | None, [None, 1.0], ["null", True]),
        (Literal["a", 1], ["a", 1], ["b", True, 1.0]),
        (list[int], [[], [1, 2]], [[True], [1.0], 3, "12", {"a": 1}]),
        (tuple[float, float], [[1, 2.0]], [[1], [1, 2, 3], [1, "2"]]),
        (tuple[int, ...], [[], [1], (1, 2)], [["1"], "1"]),
        (dict[str, int], [{}, {"a": 1}], [{"a": "1"}, [], "a"]),
        (Callable[[float], float], [abs, Constant(1.0)], [1.0, "abs"]),
        (Dataset, [Digits(0.2)], [1, "digits", {}, Constant(1.0)]),
        (Constant, [Constant(1.0)], [1.0, Linear(0.0, 1.0)]),
    ],
)
def test_values_fit_the_types_that_they_seem_to_fit(hint, fitting, others):
    assert all(fits(value, hint) for value in fitting)
    assert not any(fits(value, hint) for value in others)
    with pytest.raises(UserError, match=r"^x must be .*, got ") as told:
        typed("x", others[0], hint)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("hint", "value", "sentence"),
    [
        (Count, 0, "x must be a whole number of at least 1, got 0."),
        (Count | None, -1, "x must be a whole number of at least 1, got -1."),
        (list[Count], [2, 0], "each of x must be a whole number of at least 1, got 0."),
        (Annotated[int, Meta(ge=2, le=5)], 6, "x must be a whole number from 2 to 5, got 6."),
        (Annotated[float, Meta(ge=1)], 0.5, "x must be a number of at least 1, got 0.5."),
        (Positive, 0.0, "x must be a positive number, got 0.0."),
        (Fraction, 1, "x must be a number between 0 and 1, got 1."),
        (Share, 1.5, "x must be a number from 0 to 1, got 1.5."),
    ],
)
def test_a_value_out_of_its_annotated_range_is_refused(hint, value, sentence):
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}$"):
        typed("x", value, hint)


@pytest.mark.parametrize(
    ("hint", "value"),
    [(Count, 1), (Count | None, None), (list[Count], []), (Positive, 1e-9), (Share, 0)],
)
def test_a_value_in_its_annotated_range_is_taken(hint, value):
    typed("x", value, hint)


def test_what_a_mapping_maps_to_is_named():
    with pytest.raises(UserError, match=r"^x must be a mapping of lists of numbers, got \{'a': "):
        typed("x", {"a": [0, math.inf]}, dict[str, list[float]])
    with pytest.raises(UserError, match=r"^x must be a mapping, got 3"):
        typed("x", 3, dict[str, Any])


def test_a_path_must_be_possible_and_not_too_deep():
    assert path_of("out", "a/b c/é") == Path("a/b c/é")
    assert path_of("out", ".") == Path()
    for name in ("", None, 3, "a\0b", "a" * 256, "é" * 128, "b/" * 1501, "\ud800"):
        with pytest.raises(UserError, match="out must be the name of a file"):
            path_of("out", name, "file")
    with pytest.raises(UserError, match="out must be the name of a folder, at most 200 folders de"):
        path_of("out", "a/" * 1400)
