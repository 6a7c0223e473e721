import pytest

from dpbench.runs.config.table_file import table_file
from dpbench.system.errors import UserError

COLUMN = {"metric": "test/loss", "factor": 1, "digits": 2, "better": "lower"}
CLAIM = {
    "statement": "So.",
    "source": "page 1",
    "better": ["fair"],
    "than": ["sgd"],
    "in": ["acc_a"],
}


def test_columns_and_rows_keep_their_order(edition):
    toy = edition(conditions=["x", "y"])
    assert [column.name for column in toy.columns] == ["acc_a", "pi_ab"]
    assert toy.rows[2:4] == ["x, fair", "y, sgd"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"spread": "sd"}, "table.spread must be standard error or standard deviation or null"),
        ({"methods": []}, "methods must name at least one"),
        ({"seeds": [0, 0]}, "none twice"),
        ({"conditions": []}, "conditions must name at least one"),
        ({"groups": ["m"]}, "two groups or none"),
        ({"groups": []}, "whose privacy cost toy_table1 has"),
        ({"baseline": "adam"}, "table.methods must contain adam, the baseline"),
        ({"published_runs": 0}, "table.published_runs must be a whole number of at least 1"),
        ({"spreed": "sd"}, "no 'spreed' in the table: did you mean spread"),
        ({"columns": {}}, "columns must name at least one"),
        ({"columns": {"x": {**COLUMN, "better": "more"}}}, "table.columns.x.better must be"),
        ({"columns": {"x": {**COLUMN, "factor": "100"}}}, "table.columns.x.factor must be"),
        ({"columns": {"x": {**COLUMN, "digits": -1}}}, "table.columns.x.digits must be a whole"),
        ({"claims": {"x": {**CLAIM, "bettr": ["fair"]}}}, "no 'bettr' in table.claims.x: did"),
        ({"claims": {"x": {**CLAIM, "larger": ["fair"]}}}, "x must have one of better, larger, sm"),
        (
            {"claims": {"x": {**CLAIM, "than": "sgd"}}},
            r"table.claims.x.than must be a list of texts or numbers, got 'sgd'",
        ),
        ({"claims": {"x": {**CLAIM, "over": "sum"}}}, "table.claims.x.over must be mean or min"),
        ({"claims": {"x": {**CLAIM, "than": []}}}, "than in claim x must name at least one"),
        ({"claims": {"x": {**CLAIM, "by": "2"}}}, "table.claims.x.by must be a number"),
        ({"claims": {"x": ["better"]}}, "table.claims.x must be a mapping"),
        ({"claims": {"x": {"better": ["fair"]}}}, "'statement' is missing in table.claims.x"),
        (
            {"columns": {"x": {**COLUMN, "margin": "1/2"}}},
            "margin in column x must be a number abov",
        ),
        ({"columns": {"x": {**COLUMN, "margin": 0}}}, "a share such as 2%, not 0"),
        ({"columns": {"x": {**COLUMN, "judged": "no"}}}, "table.columns.x.judged must be"),
        ({"columns": {"x": {"metric": "test/new"}}}, "'factor' is missing in column x"),
    ],
)
def test_inconsistent_settings_of_a_table_are_refused(edition, changes, complaint):
    with pytest.raises(UserError, match=complaint):
        edition(**changes)


def test_a_column_has_unit_digits_direction_and_margin_of_the_registry(edition):
    columns = {"x": {"metric": "test/accuracy/a"}, "y": {"metric": "test/brier", "digits": 1}}
    x, y = edition(columns=columns).columns
    assert (x.factor, x.digits, x.better, x.printed) == (100, 1, "higher", "x")
    assert (y.factor, y.digits, y.better) == (1, 1, "lower")
    columns = {
        "all": {"metric": "test/accuracy"},
        "group": {"metric": "test/accuracy/a"},
        "loss": {"metric": "test/loss"},
        "new": {"metric": "test/new", "factor": 1, "digits": 1, "better": "lower"},
        "own": {"metric": "test/accuracy", "margin": 0.25},
    }
    margins = [column.margin for column in edition(columns=columns).columns]
    assert list(map(str, margins)) == ["0.5", "1", "2 %", "5 %", "0.25"]
    assert [margin.at(-80) for margin in margins] == [0.5, 1, 1.6, 4, 0.25]


@pytest.mark.parametrize("key", ["title", "paper", "methods", "seeds"])
def test_every_file_says_what_it_is_and_what_it_runs(plain, key):
    with pytest.raises(UserError, match=f"'{key}' is missing in the table"):
        table_file({name: value for name, value in plain.items() if name != key})


@pytest.mark.parametrize("key", ["spread", "published_runs"])
def test_what_only_the_paper_knows_has_no_default(edition, key):
    with pytest.raises(UserError, match=f"'{key}' is missing in the table"):
        edition(**{key: None})


def test_a_table_without_published_numbers_needs_no_number_of_published_runs(edition):
    assert edition(published=None, published_runs=None).published_runs == 1
