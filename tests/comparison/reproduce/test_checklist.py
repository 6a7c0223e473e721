"""The answers of `dpbench checklist`, on records made up for them."""

import csv
import shutil
from dataclasses import replace

import pytest

from dpbench.comparison.reproduce.checklist import checklist
from dpbench.comparison.reproduce.render import texts
from dpbench.comparison.reproduce.target import target_of
from dpbench.runs.records.collect import readable_records_in
from dpbench.system.errors import UserError
from dpbench.system.paths import conf_folder
from tests.comparison.tables.sweep.made_up import record


@pytest.fixture
def answers(tmp_path):
    """The line of `bam` in a folder of these records, by column."""

    def _answers(*records, **options):
        for one in records:
            one.save(tmp_path)
        out = tmp_path / "made"
        settings = [f"{key}={value}" for key, value in options.items()]
        checklist([str(tmp_path), f"out={out}", *settings])
        with out.with_suffix(".csv").open() as file:
            return {line["method"]: line for line in csv.DictReader(file)}["BAM"]

    return _answers


def changed(one, **config):
    """A record with other settings; a dict is merged into what is there."""
    old = {"dataset": {}, "users": {}, **one.config}
    new = {k: {**old[k], **v} if isinstance(v, dict) else v for k, v in config.items()}
    return replace(one, config={**old, **new})


def both(gain=0.05, seeds=(0, 1, 2), budget="eps3"):
    """Runs of bam and of dpsgd, seed by seed."""
    for seed in seeds:
        yield record("bam", budget, seed, 0.8 + gain + seed / 1000)
        yield record("dpsgd", budget, seed, 0.8 + seed / 997)


def test_one_setting_with_three_seeds_is_answered_as_such(answers):
    line = answers(*both())
    assert [line[name] for name in ("data sets", "architectures", "budgets")] == ["no (1)"] * 3
    assert line["seeds"] == "yes (3)"
    assert line["better than DP-SGD"] == "yes (1 better)"
    assert float(line["Cohen's d"]) == pytest.approx(0.05 / 0.001, rel=0.05)
    assert line["search in epsilon"] == "no (0 trials)"
    assert (line["ablation"], line["combined"], line["commit"]) == ("yes", "no (1)", "no")


def test_a_second_of_each_kind_is_several(answers):
    runs = list(both())
    other = [changed(r, choices={"dataset": "mnist", "model": "logistic"}) for r in runs]
    line = answers(*runs, *other, *both(budget="eps1"))
    assert (line["data sets"], line["architectures"]) == ("yes (2)", "yes (2)")
    assert line["budgets"] == "yes (2)"
    assert line["better than DP-SGD"] == "yes (3 better)"
    assert (
        answers(changed(runs[0], seed=9, choices={"schedule": "cosine"}))["combined"] == "yes (2)"
    )


@pytest.mark.parametrize(
    ("gain", "told"),
    [(-0.05, "no (1 worse)"), (0.0, "no (1 equivalent)"), (0.05, "yes (1 better)")],
)
def test_only_a_significant_improvement_is_one(answers, gain, told):
    assert answers(*both(gain))["better than DP-SGD"] == told


def test_a_metric_that_no_run_has_is_refused_and_the_page_names_the_one_compared(tmp_path):
    for one in both():
        one.save(tmp_path)
    arguments = [str(tmp_path), f"out={tmp_path / 'made'}"]
    for name in ("nosuch", "test/r2"):
        with pytest.raises(UserError, match=f"has the metric {name}: "):
            checklist([*arguments, f"metric={name}"])
    assert "by verdict on ECE (%) (margin 0.5; " in checklist([*arguments, "metric=test/ece"])


def test_a_condition_without_the_metric_is_not_compared(answers):
    other = [changed(one, choices={"dataset": "wine"}) for one in both()]
    for one in other:
        one.metrics.clear()
    line = answers(*both(), *other)
    assert (line["data sets"], line["better than DP-SGD"]) == ("no (1)", "yes (1 better)")


def test_a_run_that_diverged_decides_nothing_and_hides_nothing(answers):
    runs = [*both()]
    line = answers(*runs[:-1], replace(runs[-1], status="diverged"))
    assert (line["seeds"], line["better than DP-SGD"]) == ("yes (3)", "no (1 undecided)")
    assert line["Cohen's d"] == "-"


def test_two_seeds_are_not_several_and_what_has_no_pair_is_not_compared(answers):
    assert answers(*both(seeds=(0, 1)))["seeds"] == "no (2)"
    alone = [r for r in both(seeds=(5, 6, 7), budget="eps1") if r.config["method"]["name"] == "bam"]
    assert answers(*alone)["budgets"] == "no (1)", "the baseline has no run there"


@pytest.mark.parametrize(
    "config", [{"dataset": {"test_share": 0.5}}, {"mislabelled": 20}, {"users": {"number": 9}}]
)
def test_runs_on_other_examples_are_not_compared(answers, config):
    others = [changed(r, **config) if r.config["method"]["name"] == "bam" else r for r in both()]
    assert answers(*others)["seeds"] == "no (0)"


@pytest.mark.parametrize(
    "terms", [{"delta": 1e-3}, {"unit": "user"}, {"adjacency": "zero out one example"}]
)
def test_epsilons_on_other_terms_are_not_compared(answers, terms):
    others = [
        replace(r, privacy={**r.privacy, **terms}) if r.config["method"]["name"] == "bam" else r
        for r in both()
    ]
    assert answers(*others)["seeds"] == "no (0)"


def test_a_search_is_counted_and_only_a_private_one_is_in_epsilon(answers):
    trial = changed(record("bam", "eps3", 50), validation=0.1)
    assert answers(*both(), trial)["search in epsilon"] == "no (1 trial)"


def test_a_private_search_is_in_epsilon(answers):
    trials = [changed(record("bam", "eps3", s), validation=0.1, trial=s) for s in (50, 51)]
    assert answers(*both(), *trials)["search in epsilon"] == "yes (2 trials)"


def test_another_learning_rate_is_no_ablation(answers):
    runs = [changed(r, optimizer={"lr": 0.7}) if "bam" in str(r.config) else r for r in both()]
    assert answers(*runs)["ablation"] == "no"


def test_all_runs_must_name_a_clean_commit(answers):
    clean = [replace(r, provenance={"commit": "abc"}) for r in both()]
    assert answers(*clean)["commit"] == "yes (1 commit)"
    assert answers(replace(clean[0], provenance={"commit": "abc+"}))["commit"] == "no"


def test_several_settings_under_one_condition_are_not_chosen_from(answers):
    runs = list(both())
    line = answers(*runs, changed(runs[0], seed=8, optimizer={"lr": 0.7}))
    assert line["better than DP-SGD"] == "no"


def test_a_committed_table_excuses_rows_at_the_edge_of_their_range(tmp_path):
    results = conf_folder().parent / "results"
    page = checklist(["frontier_table1", f"results_dir={results}", f"out={tmp_path / 'c'}"])
    (psac,) = (line for line in page.splitlines() if line.startswith("| dpsgd_psac |"))
    assert "worse" not in psac
    assert "no (60 trials)" in psac


def test_a_table_without_the_usual_baseline_names_its_own(tmp_path):
    results = conf_folder().parent / "results"
    page = checklist(["finetune_table3", f"results_dir={results}", f"out={tmp_path / 'c'}"])
    assert "| better than head |" in page


def test_a_search_that_is_no_text_is_named(tmp_path):
    results = conf_folder().parent / "results" / "tables"
    (tmp_path / "tables").mkdir()
    shutil.copy(results / "bam_lambda.records.jsonl", tmp_path / "tables")
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "bam_lambda-bam.csv").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"bam_lambda-bam.csv is not UTF-8 text: restore or delete"):
        checklist(["bam_lambda", f"results_dir={tmp_path}", f"out={tmp_path / 'c'}"])


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ([record("dpsgd")], "has runs of dpsgd alone: add those of a method"),
        (
            [changed(record("bam"), validation=0.1, trial="a")],
            "has only trials of searches, on validation splits: add runs that are tested",
        ),
    ],
)
def test_a_folder_with_nothing_to_compare_is_refused_in_a_sentence(tmp_path, records, sentence):
    for one in records:
        one.save(tmp_path)
    with pytest.raises(UserError, match=sentence):
        checklist([str(tmp_path), f"out={tmp_path / 'c'}"])


@pytest.mark.slow
def test_the_page_of_a_comparison_has_it_at_its_foot():
    target = target_of("challenge_v1", [])
    tables = conf_folder().parent / "results" / "tables"
    records = readable_records_in(tables / f"{target.name}.records.jsonl")
    foot = texts(target, records)["md"].partition("## Checklist")[2]
    rows = {line.split(" | ")[0]: line.split(" | ") for line in foot.splitlines()}
    assert rows["| BAM"][4:6] == ["yes (10)", "no (1 undecided)"]
    assert rows["| BAM"][7] == "no (64 trials)"
    assert foot.rstrip().endswith("Made by `dpbench reproduce challenge_v1`")
    one = [record for record in records if target.method_of(record.config) == "bam"]
    assert "## Checklist" not in texts(target, one)["md"]


@pytest.mark.long
def test_a_method_twice_is_its_own_second_search_and_claims_on_the_worst_group_choose_the_metric():
    target = target_of("frontier_table6", [])
    tables = conf_folder().parent / "results" / "tables"
    page = texts(target, readable_records_in(tables / f"{target.name}.records.jsonl"))["md"]
    foot = page.partition("## Checklist, by accuracy of the worst group (%)")[2]
    rows = {line.split(" | ")[0]: line.split(" | ") for line in foot.splitlines()}
    assert "| dpsgd_again" not in rows
    assert rows["| DOPPLER"][5] == "no (2 undecided)", "ahead of one search of dpsgd, not of both"
    assert rows["| DiceSGD"][5] == "no (2 undecided)", "its search did not try dpsgd"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bam_table1-cpu_hour", "sign_table1-part"])
def test_a_table_is_named_as_its_files_are(name, tmp_path):
    text = checklist([name, f"out={tmp_path / 'c'}"])
    assert text.startswith(f"# Checklist: {name}\n")
    assert "\n| BAM | " in text or "\n| DP-SignSGD | " in text


def test_a_method_that_no_record_has_is_refused():
    results = f"results_dir={conf_folder().parent / 'results'}"
    with pytest.raises(UserError, match="method=bamm: did you mean bam"):
        checklist(["frontier_table1", "method=bamm", results])
