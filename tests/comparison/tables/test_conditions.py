import pytest

from dpbench.comparison.tables.conditions import (
    Condition,
    conditions_of,
    restricted_to,
    row_name,
    setting,
)
from dpbench.system.errors import UserError

BLOCKS = [
    {"dataset": ["a", "b"], "privacy.epsilon": [1, 2.5]},
    {"dataset": ["c"], "privacy.epsilon": [10]},
]
CONFIG = {"choices": {"dataset": "b"}, "privacy": {"epsilon": 2.5}, "batch_size": 64}


def test_blocks_are_products_and_without_them_one_condition_varies_nothing():
    labels = [condition.label for condition in conditions_of(BLOCKS)]
    assert labels == [
        *("a, epsilon 1", "a, epsilon 2.5", "b, epsilon 1", "b, epsilon 2.5"),
        "c, epsilon 10",
    ]
    (only,) = conditions_of([])
    assert (only.label, only.keys, only.overrides()) == ("", (), [])
    assert only.is_met_by(CONFIG)
    assert row_name(only.label, "sgd") == "sgd"


def test_one_condition_holds_and_a_value_narrows_or_takes_the_place_of_all():
    held = [c for c in conditions_of(BLOCKS) if c.is_met_by(CONFIG)]
    assert [c.overrides() for c in held] == [["dataset=b", "privacy.epsilon=2.5"]]
    assert Condition((("privacy.epsilon", 10),)).is_met_by({**CONFIG, "privacy": {"epsilon": 10.0}})
    assert row_name(held[0].label, "sgd") == "b, epsilon 2.5, sgd"
    conditions = conditions_of(BLOCKS)
    kept = restricted_to(conditions, "dataset", "a")
    assert [c.label for c in kept] == ["a, epsilon 1", "a, epsilon 2.5"]
    moved = restricted_to(conditions, "dataset", "d")
    assert [c.label for c in moved] == ["d, epsilon 1", "d, epsilon 2.5", "d, epsilon 10"]


def test_a_value_that_is_off_and_an_option_are_said_and_set():
    off = Condition((("augmentation.views", None),))
    assert (off.label, off.overrides()) == ("no views", ["augmentation.views=null"])
    assert [setting(CONFIG, k) for k in ("dataset", "privacy.epsilon", "batch_size")] == [
        *("b", 2.5, 64)
    ]


@pytest.mark.parametrize(
    ("blocks", "complaint"),
    [
        ([{"dataset": ["a"]}, {"seed": [1]}], "vary the same"),
        ([{"dataset": ["a"]}, {"dataset": ["b", "a"]}], "a combination twice"),
    ],
)
def test_blocks_that_make_no_table_are_refused(blocks, complaint):
    with pytest.raises(UserError, match=complaint):
        conditions_of(blocks)
