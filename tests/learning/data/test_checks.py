"""What a data set of a plug-in declares and loads is checked before the first step."""

from dataclasses import replace
from pathlib import Path

import pytest

from dpbench.learning.data.dataset import check_declared, check_loaded
from dpbench.learning.data.digits import Digits
from dpbench.system.errors import UserError

DIGITS = Digits(test_share=0.2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", None),
        ("shape", "x"),
        ("task", "x"),
        ("classes", 0),
        ("groups", "x"),
        ("train_size", 1438.5),
        ("notes", "x"),
    ],
)
def test_a_wrong_declaration_is_refused(name, value):
    other = type("Other", (Digits,), {name: value})(0.2)
    with pytest.raises(UserError, match=f"^the {name} of Other must be "):
        check_declared(other)


def test_groups_of_one_name_and_something_else_than_data_are_refused():
    with pytest.raises(UserError, match="two groups of digits have one name"):
        check_declared(type("Other", (Digits,), {"groups": ("a",) * 10})(0.2))
    with pytest.raises(UserError, match=r"load must return a dpbench\.data\.dataset\.Data"):
        check_loaded(DIGITS, None)


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("targets", lambda t: t + 5, "the targets of the data of digits are not int64 from 0 to 9"),
        ("targets", lambda t: t - 1, "the targets of the data of digits are not int64 from 0 to 9"),
        ("groups", lambda t: t + 5, "the groups of the data of digits are not int64 from 0 to 9"),
        ("groups", lambda t: t.float(), "the groups of the data of digits are not int64 from 0"),
        ("groups", lambda t: t[:-1], "a split has one of each for every example"),
        ("inputs", lambda t: t.double(), r"inputs of the data of digits are torch\.float64: store"),
    ],
)
def test_wrong_data_are_refused(part, name, change, why):
    data = DIGITS.load(Path("unread"), 0)
    split = getattr(data, part)
    wrong = replace(data, **{part: replace(split, **{name: change(getattr(split, name))})})
    with pytest.raises(UserError, match=why):
        check_loaded(DIGITS, wrong)
