from dataclasses import fields

import pytest

from dpbench.system.errors import UserError
from dpbench.tables.spec import TableSpec, table_spec

COLUMN = {
    "metric": "test/loss",
    "factor": 1,
    "digits": 2,
    "better": "lower",
}
CLAIM = {
    "statement": "So.",
    "source": "page 1",
    "better": ["fair"],
    "than": ["sgd"],
    "in": ["acc_a"],
}


def test_columns_keep_their_order_and_lists_become_tuples(plain, spec):
    assert [column.name for column in spec.columns] == ["acc_a", "pi_ab"]
    assert spec.methods == ("sgd", "dpsgd", "fair")
    assert hash(spec) == hash(table_spec(plain))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"spread": "sd"}, "spread=sd is unknown: choose from standard deviation, standard error"),
        ({"methods": []}, "methods must name at least one"),
        ({"seeds": [0, 0]}, "none twice"),
        ({"conditions": []}, "conditions must name at least one"),
        ({"groups": ["m"]}, "two groups or none"),
        ({"groups": []}, "whose privacy cost toy_table1 has"),
        ({"baseline": "adam"}, "table.methods must contain adam, the baseline"),
        ({"published_runs": 0}, "published_runs must be a whole number of at least 1"),
        ({"spreed": "sd"}, "no 'spreed' in the table: did you mean spread"),
        ({"columns": {}}, "columns must name at least one"),
        ({"columns": {"x": {**COLUMN, "better": "more"}}}, "table.columns.x.better must be"),
        ({"columns": {"x": {**COLUMN, "factor": "100"}}}, "table.columns.x.factor must be"),
        ({"columns": {"x": {**COLUMN, "digits": -1}}}, "digits in column x"),
        ({"claims": {"x": {**CLAIM, "bettr": ["fair"]}}}, "no 'bettr' in claim x: did you mean"),
        ({"claims": {"x": {**CLAIM, "larger": ["fair"]}}}, "x must have one of better, larger, sm"),
        (
            {"claims": {"x": {**CLAIM, "than": "sgd"}}},
            "than in claim x must be a list of",
        ),
        ({"claims": {"x": {**CLAIM, "over": "sum"}}}, "over in claim x=sum is unknown"),
        ({"claims": {"x": {**CLAIM, "than": []}}}, "than in claim x must name at least one"),
        ({"claims": {"x": {**CLAIM, "by": "2"}}}, "by in claim x must be a number"),
        ({"claims": {"x": ["better"]}}, "claim x must be a mapping"),
        ({"claims": {"x": {"better": ["fair"]}}}, "'statement' is missing in claim x"),
        (
            {"columns": {"x": {**COLUMN, "margin": "1/2"}}},
            "margin in column x must be a number abov",
        ),
        ({"columns": {"x": {**COLUMN, "margin": 0}}}, "a share such as 2%, not 0"),
        ({"columns": {"x": {**COLUMN, "judged": "no"}}}, "table.columns.x.judged must be"),
        ({"columns": {"x": {"metric": "test/new"}}}, "'factor' is missing in column x"),
    ],
)
def test_inconsistent_settings_of_a_table_are_refused(plain, changes, complaint):
    with pytest.raises(UserError, match=complaint):
        table_spec({**plain, **changes})


def test_a_column_has_unit_digits_and_direction_of_the_registry(plain):
    columns = {"x": {"metric": "test/accuracy/a"}, "y": {"metric": "test/brier", "digits": 1}}
    x, y = table_spec({**plain, "columns": columns}).columns
    assert (x.factor, x.digits, x.better, x.printed) == (100, 1, "higher", "x")
    assert (y.factor, y.digits, y.better) == (1, 1, "lower")


def test_a_column_has_the_margin_of_its_metric_unless_it_states_one(plain):
    columns = {
        "all": {"metric": "test/accuracy"},
        "group": {"metric": "test/accuracy/a"},
        "loss": {"metric": "test/loss"},
        "new": {"metric": "test/new", "factor": 1, "digits": 1, "better": "lower"},
        "own": {"metric": "test/accuracy", "margin": 0.25},
    }
    margins = [column.margin for column in table_spec({**plain, "columns": columns}).columns]
    assert list(map(str, margins)) == ["0.5", "1", "2 %", "5 %", "0.25"]
    assert [margin.at(-80) for margin in margins] == [0.5, 1, 1.6, 4, 0.25]


@pytest.mark.parametrize("key", [field.name for field in fields(TableSpec)])
def test_no_key_has_a_default(plain, key):
    with pytest.raises(UserError, match=f"'{key}' is missing in the table"):
        table_spec({name: value for name, value in plain.items() if name != key})
