import json
import math

import pytest
from scipy import stats

from dpbench.comparison.dashboard.command import strict
from dpbench.comparison.dashboard.summarise import Summary
from dpbench.system.errors import UserError


def summarised(records, command):
    """What the page gets, with no tables."""
    summary = Summary(command)
    for record in records:
        summary.add(record)
    return summary.data({}, [])


@pytest.fixture
def summary():
    """summary(records): what the page gets, with no tables and no commands."""

    def make(*records):
        return summarised(records, lambda config: None)

    return make


def test_it_is_json_without_nan(summary, record_of):
    nan = record_of(accuracy=math.nan, status="diverged", bins=False)
    data = summary(nan, record_of(seed=1))
    json.dumps(data, allow_nan=False)
    place = [metric["name"] for metric in data["metrics"]].index("test/accuracy")
    found = [(*r["metrics"][place : place + 2], r["status"]) for r in data["rows"]]
    assert found == [("NaN", "NaN", "diverged"), (0.8, 0.2, "complete")]


def test_the_reason_stands_where_no_command_is_shown(record_of):
    def refuse(config):
        raise UserError("<b>it is refused</b>")

    (row,) = summarised([record_of()], refuse)["rows"]
    assert (row["command"], row["no_command"]) == (None, "<b>it is refused</b>")
    (row,) = summarised([record_of()], lambda config: "dpbench run")["rows"]
    assert (row["command"], row["no_command"]) == ("dpbench run", None)


def test_bins_add_over_runs_a_metric_may_be_null_and_a_variant_is_a_method(summary, record_of):
    other = record_of(seed=1)
    del other.metrics["test/ece"]
    data = summary(record_of(), other)
    names = [metric["name"] for metric in data["metrics"]]
    assert [row["metrics"][names.index("test/ece")] for row in data["rows"]] == [0.05, None]
    (row,) = summary(record_of())["rows"]
    assert row["bins"] == ((0, 0, 0), (40, 24.0, 20.0), (60, 54.0, 48.0))
    assert summary(record_of(bins=False))["rows"][0]["bins"] is None
    record = record_of("dpsgd_f")
    record.config["method"]["variant"] = "paper"
    assert summary(record)["rows"][0]["method"] == "dpsgd_f (paper)"


def test_rows_come_by_method_budget_and_seed(summary, record_of):
    args = [("dpsgd_f", 0, 1.0), ("dpsgd", 10, 4.0), ("dpsgd", 2, 4.0), ("dpsgd", 0, 1.0)]
    inf = record_of("dpsgd", 0, math.inf, guarantee="none")
    rows = summary(*(record_of(m, s, e) for m, s, e in args), inf)["rows"]
    found = [(row["method"], row["seed"], row["axis"]["pld"]) for row in rows]
    assert found == [
        ("dpsgd", "0", 1.0), ("dpsgd", "2", 4.0), ("dpsgd", "10", 4.0),
        ("dpsgd", "0", "not private"), ("dpsgd_f", "0", 1.0),
    ]  # fmt: skip


def test_trials_and_published_records_are_rows_without_epsilon_axis_or_seed(summary, record_of):
    (row,) = summary(record_of(trial="abc"))["rows"]
    assert set(row["axis"].values()) == {"see its search"}
    published = record_of()
    published.config["seed"] = None
    unknown, known = (row["seed"] for row in summary(record_of(seed=3), published)["rows"])
    assert (unknown, known) == (str(published.seed), "3")


@pytest.mark.parametrize("adjacency", ["add or remove one user", "zero out one example"])
def test_another_adjacency_stands_in_a_picture_of_its_own(summary, record_of, adjacency):
    other = record_of(seed=1)
    other.privacy["adjacency"] = adjacency
    facets = {row["facet"] for row in summary(record_of(), other)["rows"]}
    assert facets == {"digits · mlp", f"digits · mlp · {adjacency}"}


def test_runs_on_other_examples_are_not_compared(summary, record_of):
    other = record_of("dpsgd_f", mislabelled=20)
    other.config["dataset"]["test_share"] = 0.5
    found = summary(record_of(), other)
    name = "digits (test_share=0.5, mislabelled=20) · mlp"
    assert {row["facet"] for row in found["rows"]} == {"digits · mlp", name}
    assert all(len(board["rows"]) == 1 for board in found["boards"])


def test_a_verdict_names_the_settings_that_two_methods_do_not_share(summary, record_of):
    other = record_of("dpsgd_f", epochs=7)
    other.config["features"] = {"order": 2}
    other.config["optimizer"]["lr"] = 9.0
    shown = str(summary(record_of(), other)["boards"][0]["rows"])
    assert "undecided: other epochs, features" in shown
    shown = str(summary(record_of(), record_of("dpsgd_f"))["boards"][0]["rows"])
    assert "other " not in shown


def test_columns_and_files_of_ones_own_are_compared_only_with_themselves(summary, record_of):
    """Of one name: two targets, and a file that has changed; other settings stay in one picture."""
    one, two = "1" * 64, "2" * 64
    own = [("sex", one, []), ("age", one, []), ("age", two, []), ("age", two, ["x"])]
    records = []
    for target, checksum, drop in own:
        record = record_of()
        record.config["choices"]["dataset"] = "csv:people"
        file = {"target": target, "checksum": f"sha256:{checksum}", "drop": drop}
        record.config["dataset"] |= file
        records.append(record)
    found = summary(*records)
    assert {row["facet"] for row in found["rows"]} == {
        "csv:people 111111 (sex) · mlp",
        "csv:people 111111 (age) · mlp",
        "csv:people 222222 (age) · mlp",
    }
    assert len(found["boards"]) == 3


@pytest.mark.parametrize(
    ("seconds", "steps", "expected"),
    [(3.0, 100, 30.0), (None, 100, None), (3.0, 0, None), (math.nan, 100, None)],
)
def test_cost_is_milliseconds_per_step_or_nothing(summary, record_of, seconds, steps, expected):
    record = record_of(seconds=seconds)
    record.privacy["steps"] = steps
    assert summary(record)["rows"][0]["ms"] == expected


def test_the_quantiles_are_those_of_student(summary, record_of):
    data = summary(*(record_of(seed=s) for s in range(4)))
    assert data["t"] == pytest.approx([stats.t(k).ppf(0.975) for k in (1, 2, 3)])


def test_a_record_in_the_page_is_json_and_the_record(record_of):
    record = record_of(epsilon=math.inf, guarantee="none", accuracy=math.nan, status="diverged")
    found = json.loads(strict(record.json()), parse_constant=pytest.fail)
    expected = record.json().replace("NaN", "null").replace("Infinity", '"inf"')
    assert found == json.loads(expected)


@pytest.mark.parametrize("name", ['NaN "', "-Infinity\\", '\\" NaN', "é NaN: ,"])
def test_names_of_numbers_within_strings_are_kept(name):
    text = json.dumps({name: [math.nan, name, -math.inf, math.inf]})
    assert json.loads(strict(text)) == {name: [None, name, "-inf", "inf"]}


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([], (1, ())),
        ([2.0, math.nan, 1.23456], (1, (2.0, None, 1.235))),
        ([float(i) for i in range(1, 202)], (3, tuple(float(i) for i in range(3, 202, 3)))),
    ],
)
def test_a_row_has_the_training_loss_of_a_hundred_epochs(summary, record_of, losses, expected):
    record = record_of()
    record.history["train/loss"] = losses
    assert summary(record)["rows"][0]["losses"] == expected
