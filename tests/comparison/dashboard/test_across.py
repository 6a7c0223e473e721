"""The first view over several tasks: who is compared, by which differences, and who is tied."""

import csv
import io
import math

import pytest

from dpbench.comparison.dashboard.across import across, critical_difference, studies
from dpbench.comparison.dashboard.board_files import answer
from dpbench.comparison.dashboard.board_view import across_view
from dpbench.comparison.dashboard.summarise import Summary
from dpbench.runs.records.collect import StoredRecord
from tests.latex import assert_compiles

NAMES = {"dpsgd": "DP-SGD", "dpsgd_f": "DPSGD-F", "bam": "BAM", "sgd": "SGD"}
NOISE = (0.0, 0.002, -0.001, 0.001, -0.002)


def runs(record_of, means):
    """Five seeds of each method on two data sets, whose accuracies differ by a tenth."""
    return [
        record_of(method, seed, accuracy=mean + noise * (1 + (method == "bam")) - gap, dataset=data)
        for method, mean in means.items()
        for seed, noise in enumerate(NOISE)
        for data, gap in (("digits", 0.0), ("adult", 0.1))
    ]


def studied(records, metric="test/accuracy"):
    summary = Summary(lambda config: "")
    for record in records:
        summary.add(StoredRecord(record, "runs/x.json", record.json()))
    return [across(study) for study in studies(summary.contests) if study.metric == metric]


@pytest.fixture(scope="module")
def records(record_of):
    return runs(record_of, {"dpsgd": 0.80, "dpsgd_f": 0.90, "bam": 0.80})


def test_methods_are_compared_by_their_means_over_tasks(records):
    (board,) = studied(records)
    found = {w["method"]: (w["verdict"], w["ranks"], w["mean_rank"]) for w in board["rows"]}
    assert found == {
        "dpsgd_f": ("better", (1, 1), 1.0),
        "dpsgd": (None, (2, 3), 2.0),
        "bam": ("equivalent", (2, 3), 3.0),
    }
    assert board["rows"][0]["mean"].mean == pytest.approx(0.85)
    assert board["rows"][0]["gap"][0] == pytest.approx(0.1)
    assert [gap[0] for gap in board["rows"][0]["gaps"]] == pytest.approx([0.1, 0.1])
    assert answer(board, NAMES) == (
        "At ε 2.00, all kinds of data (2 tasks), 5 seeds, by accuracy: of 2 other methods, "
        "1 is better than DP-SGD, 1 is within 0.5 points of it."
    )


def test_the_sentence_turns_with_the_sign_of_a_difference(record_of):
    (board,) = studied(runs(record_of, {"dpsgd": 0.80, "dpsgd_f": 0.70, "bam": 0.80}))
    assert answer(board, NAMES).endswith(
        "none is better than DP-SGD, 1 is within 0.5 points of it, 1 is worse."
    )


def test_a_seed_that_one_task_lacks_does_not_count(records):
    left = [
        record
        for record in records
        if (record.config["seed"], record.config["choices"]["dataset"]) != (4, "adult")
    ]
    assert {row["seeds"] for row in studied(left)[0]["rows"]} == {4}


def test_tasks_and_epsilons_on_other_terms_are_not_compared(record_of):
    means = {"dpsgd": 0.80, "dpsgd_f": 0.90, "bam": 0.80}
    made = runs(record_of, means)
    for record in made:
        if record.config["choices"]["dataset"] == "adult":
            record.privacy["delta"] = 1e-3
    assert studied(made) == []
    assert studied(runs(record_of, {"dpsgd": 0.80, "dpsgd_f": 0.90})) == []
    made = runs(record_of, {"dpsgd": 0.80, "dpsgd_f": 0.90, "bam": 0.80})
    for record in made:
        if record.config["choices"]["dataset"] == "adult":
            record.privacy["adjacency"] = "zero out one example"
    assert studied(made) == []


def test_another_split_of_a_task_is_no_second_task(record_of):
    means = {"dpsgd": 0.80, "dpsgd_f": 0.90, "bam": 0.80}
    made = runs(record_of, means)
    again = [r for r in runs(record_of, means) if r.config["choices"]["dataset"] == "digits"]
    for record in again:
        record.config["dataset"]["test_share"] = 0.5
    (board,) = studied([*again, *made])
    assert board["facets"] == ["adult · mlp", "digits · mlp"]


def test_the_critical_difference_is_that_of_demsar():
    """Section 3.2.2: four classifiers on fourteen data sets."""
    assert critical_difference(4, 14) == pytest.approx(
        2.569 * math.sqrt(4 * 5 / (6 * 14)), abs=2e-3
    )


def test_it_is_saved_as_csv_and_latex(records, tmp_path):
    view = across_view(studied(records)[0], NAMES)
    first, *_ = csv.DictReader(io.StringIO(view["files"]["csv"]))
    assert (first["method"], first["first_rank"], first["verdict"]) == ("dpsgd_f", "1", "better")
    assert float(first["digits · mlp, difference"]) == pytest.approx(0.1)
    assert "+10.0" in view["files"]["tex"]
    assert_compiles(tmp_path, view["files"]["tex"])
