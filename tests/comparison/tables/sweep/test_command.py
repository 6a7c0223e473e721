"""The table of a sweep: what is in a cell, what is best, and what may not be mixed."""

import csv
import io
import math
import shlex
import statistics
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpbench.comparison.tables.sweep.cells import SweepLayout, filter_records, group_runs
from dpbench.comparison.tables.sweep.command import _usual, command_for, table
from dpbench.system.errors import UserError
from tests.comparison.tables.sweep.made_up import record


def test_markdown_has_names_means_seeds_epsilons_and_the_best(made):
    lines = made("columns=privacy", "metrics=accuracy,ece")["md"].splitlines()
    assert lines[0] == "# Accuracy (%), ECE (%) by method and privacy: digits, mlp"
    assert lines[2] == (
        "| method | eps1, accuracy (%) | eps1, ECE (%) | eps1, epsilon (PLD) | "
        "eps3, accuracy (%) | eps3, ECE (%) | eps3, epsilon (PLD) |"
    )
    rows = {line.split("|")[1].strip(): line for line in lines[4:8]}
    assert rows["DP-SGD (global, adaptive)"] == (
        "| DP-SGD (global, adaptive) | **90.5 ± 0.7 (2)** | **9.5 ± 0.7 (2)** | 0.90 | "
        "**90.5 ± 0.7 (2)** | **9.5 ± 0.7 (2)** | 2.80 |"
    )
    assert "**" not in rows["DP-SGD"] + rows["SGD"] + rows["FairLens"]
    assert rows["SGD"].count("| not private |") == rows["FairLens"].count("| no proof |") == 2


def test_the_table_says_what_its_epsilons_do_not_cover(made):
    said = made("columns=privacy")["md"]
    assert "it covers neither metrics nor a choice by them, nor statistics" in said


def test_terms_are_said_once_where_all_share_them_and_beside_each_epsilon_where_not(tmp_path):
    def made(*terms):
        folder = tmp_path / str(len(terms))
        for method, more in zip(("dpsgd", "bam", "dp_fedsgd", "dpsat"), terms, strict=False):
            one = record(method)
            replace(one, privacy=one.privacy | more).save(folder)
        said = table([str(folder), f"out={folder / 't'}"])
        return said, list(csv.DictReader(io.StringIO((folder / "t.csv").read_text())))

    said, lines = made({}, {})
    others = "Poisson batches, proven.\n"
    usual = f"delta 1e-05, per example, add-or-remove adjacency, {others}"
    assert said.endswith(f"All epsilons: {usual}")
    assert "| 2.80 |" in said
    assert "**" in said
    assert [(line["delta"], line["unit"]) for line in lines] == [("1e-05", "example")] * 2
    assert {(e["batches"], e["guarantee"]) for e in lines} == {("Poisson batches", "proven")}
    said, _ = made(*[{"adjacency": "zero out one example"}] * 4)
    assert said.endswith(f"All epsilons: delta 1e-05, per example, zero-out adjacency, {others}")
    said, lines = made({}, {}, {"adjacency": "zero out one example"})
    assert said.count("| 2.80 (add-or-remove adjacency) |") == 2
    assert said.count("| 2.80 (zero-out adjacency) |") == 1
    assert sorted(line["zero_out"] for line in lines) == ["False", "False", "True"]
    said, lines = made({}, {"delta": 1e-6}, {"delta": 1e-6, "unit": "user"}, {"delta": 1e-6})
    assert "| 2.80 (delta 1e-05, per example) |" in said
    assert "| 2.80 (delta 1e-06, per user) |" in said
    assert said.endswith(f"All epsilons: add-or-remove adjacency, {others}")
    assert "**" not in said, "per example and per user"
    assert {(line["delta"], line["unit"]) for line in lines} > {("1e-06", "user")}


def test_epsilons_of_other_batches_or_guarantees_are_told_apart_and_compared(tmp_path):
    law = {"law": "Allocation", "steps": 9, "turns": 1, "unit": "example"}
    allocated = {"ledger": [{"times": 1, "sampling": law, "releases": []}]}
    for method, more in (("dpsgd", {}), ("bam", allocated), ("dpsat", {"guarantee": "claimed"})):
        one = record(method)
        replace(one, privacy=one.privacy | more).save(tmp_path)
    said = table([str(tmp_path), f"out={tmp_path / 't'}"])
    assert said.count("| 2.80 (Poisson batches) |") == 1
    assert said.count("| 2.80 (randomly allocated batches) |") == 1
    assert said.count("| 2.80 (claimed) (Poisson batches) |") == 1
    assert "**" in said
    assert said.endswith("All epsilons: delta 1e-05, per example, add-or-remove adjacency.\n")


def test_csv_has_the_numbers_of_each_cell(made):
    text = made("columns=privacy", "metrics=accuracy,accuracy/a")["csv"]
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == 4 * 2 * 2
    (line,) = [
        line
        for line in lines
        if (line["method"], line["privacy"], line["metric"]) == ("dpsgd", "eps1", "test/accuracy")
    ]
    values = [80.0, 81.0]
    assert float(line["mean"]) == pytest.approx(statistics.fmean(values))
    assert float(line["sd"]) == pytest.approx(statistics.stdev(values), rel=1e-5)
    assert (line["n"], line["epsilon"]) == ("2", "0.9")
    assert {line["epsilon"] for line in lines if line["method"] in ("sgd", "fairlens")} == {""}


def test_the_best_mean_of_a_table_over_data_sets_is_that_of_each(tmp_path):
    values = {("easy", "dpsgd"): 0.9, ("easy", "bam"): 0.8, ("hard", "dpsgd"): 0.3}
    values["hard", "bam"] = 0.4
    for (data, method), value in values.items():
        one = record(method, value=value)
        one.config["choices"]["dataset"] = data
        one.save(tmp_path)
    said = table([str(tmp_path), f"out={tmp_path / 't'}", "rows=dataset,method"])
    assert "| easy | DP-SGD | **90.0 (1)**" in said
    assert "| hard | BAM | **40.0 (1)**" in said
    assert sum("**" in line for line in said.splitlines()) == 2


def test_latex_is_bold_and_escaped(made):
    text = made("metrics=accuracy", "privacy=eps3")["tex"]
    assert r"DP-SGD (global, adaptive) & \textbf{90.5 $\pm$ 0.7 (2)} & 2.80 \\" in text
    assert r"accuracy (\%)" in text
    assert "*" not in text


def test_settings_are_rows_in_their_order_and_numbers_are_selected_as_written(results, made):
    for lr in (0.5, 0.05, 10.0):
        record(lr=lr, seed=5).save(results)
    lines = made("rows=optimizer.lr", "method=dpsgd", "privacy.epsilon=3", "seed=5")["md"]
    assert [line.split("|")[1].strip() for line in lines.splitlines()[4:7]] == ["0.05", "0.5", "10"]
    assert "| lr |" in lines


def test_runs_that_differ_by_more_than_their_seed_are_never_averaged(results, made):
    with pytest.raises(UserError, match=r"differ in privacy \(eps1: 8, eps3: 8\): add each to"):
        made()
    record(lr=0.5).save(results)
    with pytest.raises(
        UserError, match=r"optimizer\.lr \(0\.1: 2, 0\.5: 1\): .*, e\.g\. optimizer\.lr=0\.1"
    ):
        made("columns=privacy")
    assert "DP-SGD" in made("columns=privacy", "optimizer.lr=0.1")["md"]


@pytest.mark.parametrize("best", [[], ["best=validation"]])
def test_runs_of_one_setting_are_averaged_whichever_version_wrote_them(results, made, best):
    older, newer = (record(seed=seed, value=0.6 + seed / 10, lr=0.3) for seed in (0, 1))
    older.config["privacy"]["_target_"] = "dpbench.privacy.Privacy"
    newer.config["privacy"]["_target_"] = "dpbench.training.budget.Privacy"
    newer.config["choices"]["features"], newer.config["features"] = "none", {}
    trial = record(seed=9, lr=0.3)
    trial.config["validation"] = 0.1
    for run in (older, newer, trial):
        run.save(results)
    assert "| 65.0 ± 7.1 (2) |" in made("optimizer.lr=0.3", *best)["md"]


@pytest.mark.parametrize(("split_seed", "shared"), [(0, True), (None, False)])
def test_a_table_mentions_that_all_seeds_share_one_split(tmp_path, split_seed, shared):
    for seed in (0, 1):
        run = record(seed=seed)
        run.config["dataset"] = {"split_seed": split_seed}
        run.save(tmp_path)
    text = table([str(tmp_path), f"out={tmp_path / 't'}"])
    assert ("All seeds share one split into training" in text) == shared


def test_all_settings_in_which_runs_differ_are_named_at_once(results, made):
    record(lr=0.5).save(results)
    other = record(seed=3, value=0.7)
    other.config["epochs"] = 2
    other.save(results)
    with pytest.raises(UserError) as refused:
        made("method=dpsgd")
    said = str(refused.value)
    assert said.startswith(
        "runs in one cell differ in epochs (null: 5, 2: 1), optimizer.lr (0.1: 5, 0.5: 1), privacy "
        "(eps3: 4, eps1: 2): add each"
    )
    *_, selection = said.rstrip(".").partition("e.g. ")
    assert [word.partition("=")[0] for word in selection.split()] == [
        *("epochs", "optimizer.lr", "privacy")
    ]
    assert made("method=dpsgd", "rows=[]", *selection.split())["md"].startswith(
        "# Accuracy (%): digits, mlp\n"
    )
    title = made("rows=epochs", "columns=optimizer.lr,privacy,method")["md"].splitlines()[0]
    assert title == "# Accuracy (%) by epochs, lr, privacy and method: digits, mlp"


def test_runs_do_not_differ_in_whole_numbers_with_and_without_a_point(results, made):
    for seed, factor, rate in ((7, 3, 0.5), (8, 3.0, 0.5), (9, 3.0, 0.6)):
        run = record(seed=seed, lr=rate)
        run.config["head_lr_factor"] = factor
        run.save(results)
    for selected, differing in (("3", r"optimizer.lr \("), ("3,null", r"head_lr_factor \(3: 3, ")):
        with pytest.raises(UserError, match=f"^runs in one cell differ in {differing}"):
            made("method=dpsgd", "privacy=eps3", f"head_lr_factor={selected}")


def test_trials_of_a_search_are_left_out_of_a_table_unless_asked_for(results, made, capsys):
    trial = record(value=0.1, seed=9)
    trial.config["validation"] = 0.2
    trial.save(results)
    assert "(2)" in made("privacy=eps3", "method=dpsgd")["md"]
    assert "left out 1 run with a validation split" in capsys.readouterr().err
    assert "(1)" in made("privacy=eps3", "method=dpsgd", "validation=0.2")["md"]


def test_the_selection_that_is_named_can_be_made(results, made):
    """Of settings that only another option of a group has, no value is selected."""
    for number in (1, 2):
        other = record(seed=7)
        other.config["choices"]["dataset"] = "csv:people"
        other.config["dataset"] = {"name": "people", "drop": [f"column{number}"]}
        other.config["dataset"]["bounds"] = {"age in years": [0, number]}
        other.save(results)
    with pytest.raises(UserError, match=r"differ in .*dataset\.drop") as refused:
        made("method=dpsgd", "rows=privacy")
    selection = shlex.split(str(refused.value).rstrip(".").partition("e.g. ")[2])
    assert "dataset.drop=null" not in selection
    assert made("method=dpsgd", "rows=privacy", *selection)["md"]


def test_rows_of_different_budgets_have_no_best(results, made):
    record("sgd", seed=5).save(results)
    lines = made("rows=privacy,method")["md"].splitlines()
    assert not any("**" in line for line in lines if line.startswith("|"))


def test_a_suffix_of_out_is_not_written_twice(results, tmp_path):
    table([str(results), "rows=method,privacy", f"out={tmp_path}/mine.md"])
    assert {path.name for path in tmp_path.glob("mine*")} == {"mine.md", "mine.csv", "mine.tex"}


def test_a_diverged_run_is_never_best_and_a_run_counts_once():
    runs = [record(seed=0), record(seed=1, value=math.nan)]
    (cell,) = group_runs(runs, SweepLayout(("method",), (), ("test/accuracy",))).values()
    mean = cell.mean("test/accuracy")
    assert math.isnan(mean.value)
    assert mean.n == 2
    runs = [record(seed=0), record(seed=0), record(seed=1)]
    (cell,) = group_runs(runs, SweepLayout(("method",), (), ("test/accuracy",))).values()
    assert len(cell.records) == 2


def test_no_file_but_its_own_is_replaced(results, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    again = [str(results), "rows=method,privacy", "out=mine"]
    assert table(again) == table(again)
    assert "dpbench: written: mine{.md,.csv,.tex}" in capsys.readouterr().err
    for name in ("README.md", "data.csv"):
        (tmp_path / name).write_text("mine")
        for folder in (str(results), "nowhere"):  # before any record is read
            with pytest.raises(UserError, match=f"^{name} exists, and .* is not a table of this"):
                table([folder, f"out={name}"])
        assert (tmp_path / name).read_text() == "mine"
    (tmp_path / "link.tex").symlink_to("/dev/null")
    with pytest.raises(UserError, match=r"out=link\.tex is not a regular file"):
        table([*again[:2], "out=link"])
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(UserError, match=r"folder.md cannot be written .*set out to a path that"):
        table([*again[:2], "out=folder"])


@pytest.mark.parametrize(
    ("measured", "shown"),
    [
        (["test/mae", "test/r2", "test/rmse"], "r2"),
        (["test/ece", "validation/accuracy"], "accuracy"),
        ([], "accuracy"),
    ],
)
def test_the_metric_that_ranks_methods_is_shown_if_none_is_given(measured, shown):
    assert _usual([SimpleNamespace(measured=measured)]) == shown


def test_a_sweep_over_two_tasks_shows_of_each_what_ranks_its_methods(tmp_path):
    regression = record(seed=0)
    regression.config["choices"]["dataset"] = "california"
    regression.metrics.clear()
    regression.metrics["test/r2"] = 0.625
    (tmp_path / "runs").mkdir()
    for one in (regression, record(value=0.75)):
        (tmp_path / "runs" / f"{one.digest}.json").write_text(one.json())
    page = table([str(tmp_path), "rows=dataset,method", f"out={tmp_path / 'table'}"])
    assert "NaN" not in page
    assert "| california | DP-SGD | - | 0.625 (1) | 2.80 |" in page
    assert "| digits | DP-SGD | 75.0 (1) | - | 2.80 |" in page
    lines = (tmp_path / "table.csv").read_text().splitlines()[1:]
    assert [line.split(",")[:4] for line in lines] == [
        ["california", "dpsgd", "test/r2", "0.625"],
        ["digits", "dpsgd", "test/accuracy", "75"],
    ]


def test_records_that_cannot_be_read_are_named(results, made, capsys):
    (results / "runs" / "0123456789abcdef.json").write_text("{")
    made("columns=privacy")
    assert "left out runs/0123456789abcdef.json, which is not JSON" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rows=metod"], "no record has the setting metod: did you mean method"),
        (["columns=budget"], "no record has the setting budget: choose from"),
        (
            ["metrics=acuracy", "columns=privacy"],
            "no record has the metric acuracy: did you mean accuracy",
        ),
        (["basline=dpsgd"], "no record has the setting basline: did you mean baseline"),
        (["method=bam"], "no record has method=bam: choose from dpsgd, dpsgd_global_adapt"),
        (["rows="], "rows needs a value: rows=VALUE."),
        (["rows"], "rows needs a value: rows=VALUE."),
        (["rows=method,method"], "method,method names something twice"),
    ],
)
def test_unknown_settings_are_refused_in_one_sentence(made, arguments, sentence):
    with pytest.raises(UserError) as told:
        made(*arguments)
    assert sentence in str(told.value)


def test_a_missing_folder_or_missing_records_are_refused(tmp_path):
    for arguments, named in (
        ([], "results"),
        (["rows=method"], "results"),
        (["results_dir=a/b"], "a/b"),
    ):
        with pytest.raises(UserError, match=f"a folder first: dpbench table {named} rows=method"):
            table(arguments)
    with pytest.raises(
        UserError, match=r"nowhere is not a folder: name the results_dir of the runs"
    ):
        table([str(tmp_path / "nowhere")])
    with pytest.raises(UserError, match="there is no record in"):
        table([str(tmp_path)])


def test_filters_take_several_values_lists_and_settings_of_some_runs():
    runs = [record(), record("bam")]
    runs[1].config["method"]["rho"] = 0.5
    assert filter_records(runs, {"method.rho": "0.5"}) == runs[1:]
    assert filter_records(runs, {"method.rho": "null"}) == runs[:1]
    runs = [record(), record("bam"), record("dpsat")]
    assert filter_records(runs, {"method": "dpsat,bam"}) == runs[1:]
    with pytest.raises(UserError, match="no record has method=bma: did you mean bam"):
        filter_records(runs, {"method": "dpsgd,bma"})
    runs = [record(), record()]
    runs[0].config["method"]["sizes"] = [8, 8]
    runs.append(record())
    runs[2].config["method"]["sizes"] = [4]
    assert filter_records(runs, {"method.sizes": "[8, 8]"}) == runs[:1]
    assert filter_records(runs, {"method.sizes": "[8,8],[4]"}) == [runs[0], runs[2]]
    cells = group_runs(runs, SweepLayout(("method.sizes",), (), ("test/accuracy",)))
    assert {row for row, _ in cells} == {("[8,8]",), ("[4]",), (None,)}


def test_the_command_after_a_sweep_has_a_row_for_all_that_differs_but_seeds():
    runs = record(), record(lr=0.2, seed=1), record(method="bam"), record(seed=2)
    configs = [run.config for run in runs]
    assert command_for(Path("my results"), "run-1", configs) == (
        "dpbench table 'my results' sweep=run-1 rows=method,optimizer.lr"
    )
    seeds = [record(seed=seed).config for seed in (0, 1)]
    command = "dpbench table results sweep=run-2 rows=method"
    assert command_for(Path("results"), "run-2", seeds) == command


def test_a_trial_of_a_private_search_has_no_epsilon_and_is_never_best(tmp_path):
    """That of the choice among trials is larger, and on the page of the search."""
    for lr, trial in ((0.1, "a"), (0.2, "b")):
        one = record(lr=lr, value=0.8 + lr)
        replace(one, config=one.config | {"trial": trial}).save(tmp_path)
    said = table([str(tmp_path), f"out={tmp_path / 't'}", "rows=optimizer.lr"])
    assert said.count("| see its search |") == 2
    assert "**" not in said


def test_what_attacks_achieve_at_most_is_a_column_to_choose_rounded_up(tmp_path):
    made = record()
    attacks = {"membership_advantage": 0.24696, "true_positive_rate": 0.1, "reconstruction": 0.01}
    replace(made, privacy=made.privacy | {"attacks": attacks}).save(tmp_path)
    said = table([str(tmp_path), "metrics=membership_advantage", f"out={tmp_path / 't'}"])
    assert "| method | membership advantage, at most (%) | epsilon (PLD) |" in said
    assert "| DP-SGD | 24.70 (1) | 2.80 |" in said
    made = record()
    attacks = {
        "membership_advantage": 0.246920001,
        "true_positive_rate": 0.1,
        "reconstruction": 1.4e-4,
    }
    replace(made, privacy=made.privacy | {"attacks": attacks}).save(tmp_path)
    chosen = "metrics=membership_advantage,reconstruction"
    said = table([str(tmp_path), chosen, f"out={tmp_path / 't'}"])
    assert "24.70 (1)" in said
    assert "membership_advantage,24.6921,nan,1," in (tmp_path / "t.csv").read_text()
    assert "0.02 (1)" in said  # 0.01 would be the share that guessing names
