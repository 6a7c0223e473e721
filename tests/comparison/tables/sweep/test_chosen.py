"""`dpbench table best=validation`: which setting stands for a row, and of how many."""

import csv
import io

import pytest

from dpbench.comparison.tables.sweep.command import table
from dpbench.system.errors import UserError
from tests.comparison.tables.sweep.made_up import record


def trial(lr, value, **settings):
    made = record(lr=lr, **settings)
    made.config["validation"] = 0.2
    made.metrics.clear()
    made.metrics["validation/accuracy"] = value
    return made


def written(folder, records, *arguments):
    for one in records:
        one.save(folder)
    said = table([str(folder), f"out={folder / 't'}", "best=validation", *arguments])
    return said, list(csv.DictReader(io.StringIO((folder / "t.csv").read_text())))


def test_the_best_on_validation_is_shown_though_another_is_better_on_the_test_set(tmp_path):
    tested = [record(lr=lr, seed=s, value=v) for lr, v in ((0.1, 0.9), (0.5, 0.7)) for s in (0, 1)]
    tried = [trial(lr, value) for lr, value in ((0.1, 0.6), (0.5, 0.8), (0.9, 0.85))]
    said, (line,) = written(tmp_path, [*tested, *tried, record("sgd", value=0.95)], "method=dpsgd")
    assert (line["mean"], line["n"], line["trials"]) == ("70", "2", "3")
    assert "| method | accuracy (%) | epsilon (PLD) | trials |" in said
    assert "| DP-SGD | 70.0 ± 0.0 (2) | 2.80 | 3 |" in said
    assert "has the best accuracy (%) on validation splits" in said
    assert "This is not so for DP-SGD: what was best there has no run on the test set" in said


def test_a_lucky_trial_does_not_stand_before_a_finalist(tmp_path):
    tested = [record(lr=0.1, value=0.6), record(lr=0.5, value=0.8)]
    tried = [trial(0.1, 0.99), *(trial(0.5, 0.7, seed=seed) for seed in range(6))]
    said, (line,) = written(tmp_path, [*tested, *tried])
    assert (line["mean"], line["trials"]) == ("80", "2")
    assert "among those with the most seeds" in said
    assert "This is not so" not in said


@pytest.mark.parametrize(
    ("tried", "is_named"),
    [([(0.1, 0.6), (0.5, 0.5)], False), ([(0.1, 0.5), (0.5, 0.6)], True), ([(0.5, 0.6)], True)],
)
def test_the_only_tested_setting_is_not_called_the_best_of_the_trials(tmp_path, tried, is_named):
    said, _ = written(tmp_path, [record(lr=0.1), *(trial(*one) for one in tried)])
    assert ("This is not so for DP-SGD:" in said) == is_named


def test_a_row_without_trials_is_named_beside_those_with_some(tmp_path):
    said, _ = written(tmp_path, [record(lr=0.1), trial(0.1, 0.6), record("bam")])
    assert "This is not so for BAM:" in said


def test_each_budget_has_its_own_choice(tmp_path):
    found = {("eps1", 0.1): (0.6, 0.8), ("eps1", 0.5): (0.7, 0.7), ("eps3", 0.1): (0.9, 0.75)}
    found["eps3", 0.5] = 0.5, 0.85
    records = [
        made
        for (privacy, lr), (validated, value) in found.items()
        for made in (
            record(privacy=privacy, lr=lr, value=value),
            trial(lr, validated, privacy=privacy),
        )
    ]
    _, lines = written(tmp_path, records, "columns=privacy")
    assert [(line["privacy"], line["mean"]) for line in lines] == [("eps1", "70"), ("eps3", "75")]


@pytest.mark.parametrize(
    ("tried", "message"),
    [([], "needs runs with a validation split"), ([(0.9, 0.8)], "none of the 2 tested settings")],
)
def test_without_trials_of_what_was_tested_nothing_is_chosen(tmp_path, tried, message):
    records = [record(lr=0.1), record(lr=0.5), *(trial(*one) for one in tried)]
    with pytest.raises(UserError, match=message):
        written(tmp_path, records)


def test_a_value_that_no_trial_has_is_not_said_to_be_of_no_record(tmp_path):
    both = [record(privacy=name, seed=seed) for name in ("eps1", "eps3") for seed in (0, 1)]
    _, lines = written(tmp_path, [*both, trial(0.1, 0.6)], "columns=privacy", "privacy=eps1,eps3")
    assert [line["trials"] for line in lines] == ["0", "1"]
    with pytest.raises(UserError, match="needs runs with a validation split"):
        written(tmp_path, [], "privacy=eps1")


def test_no_other_rule_is_known(tmp_path):
    record().save(tmp_path)
    with pytest.raises(UserError, match="best=test is unknown"):
        table([str(tmp_path), "best=test", f"out={tmp_path / 't'}"])


@pytest.mark.parametrize("limit", [[], ["seconds=60"]])
def test_trials_alone_are_not_shown(tmp_path, limit):
    with pytest.raises(UserError, match=r"shows runs without one\. There are none"):
        written(tmp_path, [trial(0.1, 0.6), trial(0.5, 0.7)], *limit)
