"""The table of a sweep: what is in a cell, what is best, and what may not be mixed."""

import csv
import io
import math
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from dpbench.errors import UserError
from dpbench.records.record import Record
from dpbench.tables.sweep.cells import SweepLayout, filter_records, group_runs
from dpbench.tables.sweep.command import command_for, table

EPSILON = {"eps1": 0.9, "eps3": 2.8}

BASELINE = "baseline=dpsgd"


def record(method="dpsgd", privacy="eps3", seed=0, value=0.8, lr=0.1, **more):
    """A record of the shape that runs make."""
    guarantee, pld = ("proven", EPSILON[privacy])
    if method == "fairlens":
        guarantee, pld = "none", None
    if method == "sgd":
        guarantee, pld = "none", math.inf
    return Record(
        config={
            "choices": {"dataset": "digits", "model": "mlp", "method": method, "privacy": privacy},
            "method": {"name": method},
            "privacy": {"epsilon": float(privacy[3:])},
            "optimizer": {"lr": lr},
            "seed": seed,
        },
        metrics={"test/accuracy": value, "test/ece": 1 - value, "test/accuracy/a": value / 2},
        privacy={
            **{"guarantee": guarantee, "pld": pld, "rdp": pld, "gdp": pld, "claimed": pld},
            **{"why": "", "delta": 1e-5, "noise_multiplier": 1.0, "steps": 1, "ledger": []},
        },
        provenance={},
        status="complete",
        **more,
    )


def swept():
    """Four methods, of which two have an epsilon, at two budgets with two seeds."""
    best = {"sgd": 0.97, "fairlens": 0.95, "dpsgd": 0.8, "dpsgd_global_adapt": 0.9}
    return [
        record(method, privacy, seed, value + 0.01 * seed)
        for method, value in best.items()
        for privacy in EPSILON
        for seed in (0, 1)
    ]


@pytest.fixture
def results(tmp_path):
    for made in swept():
        made.save(tmp_path)
    return tmp_path


@pytest.fixture
def made(results):
    """made(*arguments): the files of the table by suffix."""

    def write(*arguments):
        printed = table([str(results), f"out={results / 't'}", *arguments])
        files = {s: (results / f"t.{s}").read_text() for s in ("md", "csv", "tex")}
        assert printed == files["md"]
        return files

    return write


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
    assert said.endswith("All epsilons: delta 1e-05, per example.\n")
    assert "| 2.80 |" in said
    assert "**" in said
    assert [(line["delta"], line["unit"]) for line in lines] == [("1e-05", "example")] * 2
    said, _ = made(*[{"adjacency": "zero out one example"}] * 4)
    assert said.endswith("All epsilons: delta 1e-05, per example, zero-out adjacency.\n")
    said, lines = made({}, {"delta": 1e-6}, {"delta": 1e-6, "unit": "user"})
    assert "| 2.80 (delta 1e-05, per example) |" in said
    assert "| 2.80 (delta 1e-06, per user) |" in said
    assert "All epsilons" not in said
    assert "**" not in said, "per example and per user"
    assert {(line["delta"], line["unit"]) for line in lines} > {("1e-06", "user")}


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


@pytest.mark.parametrize(("split_seed", "shared"), [(0, True), (None, False)])
def test_a_table_of_data_that_all_seeds_split_alike_says_so(tmp_path, split_seed, shared):
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
        *("epochs", "optimizer.lr", "privacy"),
    ]
    assert made("method=dpsgd", "rows=[]", *selection.split())["md"].startswith(
        "# Accuracy (%): digits, mlp\n"
    )
    title = made("rows=epochs", "columns=optimizer.lr,privacy,method")["md"].splitlines()[0]
    assert title == "# Accuracy (%) by epochs, lr, privacy and method: digits, mlp"


def test_trials_of_a_search_are_left_out_of_a_table_unless_asked_for(results, made, capsys):
    trial = record(value=0.1, seed=9)
    trial.config["validation"] = 0.2
    trial.save(results)
    alone = made("privacy=eps3", "method=dpsgd")["md"]
    assert "(2)" in alone
    assert "left out 1 run with a validation split" in capsys.readouterr().err
    assert "(1)" in made("privacy=eps3", "method=dpsgd", "validation=0.2")["md"]


def test_the_selection_that_is_named_can_be_made(results, made):
    """Of settings that only another option of a group has, no value is selected."""
    for number in (1, 2):
        other = record(seed=7)
        other.config["choices"]["dataset"] = "csv:people"
        other.config["dataset"] = {"name": "people", "drop": [f"column{number}"]}
        other.save(results)
    with pytest.raises(UserError, match=r"differ in .*dataset\.drop") as refused:
        made("method=dpsgd", "rows=privacy")
    selection = str(refused.value).rstrip(".").partition("e.g. ")[2].split()
    assert "dataset.drop=null" not in selection
    assert made("method=dpsgd", "rows=privacy", *selection)["md"]


def test_rows_of_different_budgets_have_no_best(results, made):
    record("sgd", seed=5).save(results)
    lines = made("rows=privacy,method")["md"].splitlines()
    assert not any("**" in line for line in lines if line.startswith("|"))


def test_a_suffix_of_out_is_not_written_twice(results, tmp_path):
    table([str(results), "rows=method,privacy", f"out={tmp_path}/mine.md"])
    assert {path.name for path in tmp_path.glob("mine*")} == {"mine.md", "mine.csv", "mine.tex"}


def test_a_diverged_run_is_not_averaged_away_and_never_best():
    runs = [record(seed=0), record(seed=1, value=math.nan)]
    cells = group_runs(runs, SweepLayout(("method",), (), ("test/accuracy",)))
    (cell,) = cells.values()
    mean = cell.mean("test/accuracy")
    assert math.isnan(mean.value)
    assert mean.n == 2


def test_a_run_counts_once():
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
        with pytest.raises(UserError, match=f"^{name} exists, and .* is not a table of this"):
            table([*again[:2], f"out={name}"])
        assert (tmp_path / name).read_text() == "mine"
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(UserError, match=r"folder.md cannot be written .*set out to a file"):
        table([*again[:2], "out=folder"])


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
        (["metrics=acuracy"], "no record has the metric acuracy: did you mean test/accuracy"),
        (["method=bam"], "no record has method=bam: choose from dpsgd, dpsgd_global_adapt"),
        (["rows="], "rows needs a value: rows=VALUE."),
        (["rows"], "rows needs a value: rows=VALUE."),
        (["rows=method,method"], "method,method names something twice"),
    ],
)
def test_what_no_record_has_is_refused_in_a_sentence(made, arguments, sentence):
    with pytest.raises(UserError) as told:
        made(*arguments)
    assert sentence in str(told.value)


def test_without_a_folder_or_records_it_says_so(tmp_path):
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


def test_a_setting_that_only_some_runs_have_can_be_selected():
    runs = [record(), record("bam")]
    runs[1].config["method"]["rho"] = 0.5
    assert filter_records(runs, {"method.rho": "0.5"}) == runs[1:]
    assert filter_records(runs, {"method.rho": "null"}) == runs[:1]


def test_a_filter_takes_several_values_and_each_must_be_that_of_a_run():
    runs = [record(), record("bam"), record("dpsat")]
    assert filter_records(runs, {"method": "dpsat,bam"}) == runs[1:]
    with pytest.raises(UserError, match="no record has method=bma: did you mean bam"):
        filter_records(runs, {"method": "dpsgd,bma"})


def test_a_list_is_one_value():
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


def by_hand(records, method, privacy, metric="test/accuracy"):
    """The values of a metric in percent by seed, of one method and budget."""
    return {
        r.config["seed"]: 100 * r.metrics[metric]
        for r in records
        if (r.config["choices"]["method"], r.config["choices"]["privacy"]) == (method, privacy)
    }


def test_differences_to_a_baseline_are_paired_by_seed_with_students_interval(made):
    files = made("columns=privacy", "baseline=dpsgd", "metrics=accuracy,ece")
    lines = list(csv.DictReader(io.StringIO(files["csv"])))
    for line in lines:
        ours, theirs = (
            by_hand(swept(), method, line["privacy"], line["metric"])
            for method in (line["method"], "dpsgd")
        )
        if line["method"] == "dpsgd":
            assert line["difference"] == line["low"] == line["pairs"] == ""
            continue
        gaps = [ours[seed] - theirs[seed] for seed in ours]
        low, high = float(line["low"]), float(line["high"])
        half = stats.t.ppf(0.975, 1) * stats.sem(gaps)
        assert float(line["difference"]) == pytest.approx(statistics.fmean(gaps), rel=1e-5)
        assert (high - low) / 2 == pytest.approx(half, rel=1e-5, abs=1e-9)
        assert (high + low) / 2 == pytest.approx(statistics.fmean(gaps), rel=1e-5)
        assert line["pairs"] == "2"
    assert len(lines) == 16


def uneven(tmp_path):
    """A better method with a learning rate of its own, whose gaps to the baseline differ by seed,
    a seed of one of them alone, and a diverged run."""
    values = {"dpsgd": [0.5, 0.6, 0.7, 0.9], "bam": [0.53, 0.65, 0.72], "dpsat": [0.1, 0.2, 0.3]}
    for method, found in values.items():
        for seed, value in enumerate(found):
            one = record(method, "eps3", seed, value, lr=0.1 if method == "dpsgd" else 0.3)
            if method == "dpsat" and seed == 1:
                one = replace(one, status="diverged")
            one.save(tmp_path)


def test_the_section_of_differences_has_common_seeds_and_no_row_of_the_baseline(tmp_path):
    uneven(tmp_path)
    said = table([str(tmp_path), f"out={tmp_path / 't'}", "rows=method,optimizer.lr", BASELINE])
    section = said.partition("## Differences to DP-SGD\n\n")[2].splitlines()
    half = stats.t.ppf(0.975, 2) * statistics.stdev([3, 5, 2]) / math.sqrt(3)
    low, high = 10 / 3 - half, 10 / 3 + half
    assert section[:4] == [
        "| method | lr | accuracy (%) |",
        "| --- | ---: | ---: |",
        f"| BAM | 0.3 | +3.3 [{low:+.1f}, {high:+.1f}] (3) |",
        "| DP-SAT | 0.3 | - |",
    ]
    assert section[4] == ""
    assert "Differences: mean over common seeds" in said


def test_where_the_baseline_has_several_rows_none_is_picked(tmp_path):
    uneven(tmp_path)
    record("dpsgd", "eps3", 0, 0.4, lr=0.2).save(tmp_path)
    arguments = [str(tmp_path), f"out={tmp_path / 't'}", "rows=method,optimizer.lr", BASELINE]
    assert "| BAM | 0.3 | - |" in table(arguments)
    assert "| BAM | 0.3 | +3.3 [" in table([*arguments, "optimizer.lr=0.1,0.3"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["baseline=dpsgx"], "no selected run has the method baseline=dpsgx: did you mean dpsgd"),
        (["baseline=dpsgd", "method=bam"], "no selected run has the method baseline=dpsgd"),
        (["baseline=bam", "rows=optimizer.lr", "method=bam"], "add method to rows or columns"),
    ],
)
def test_a_baseline_that_cannot_be_compared_with_is_refused(tmp_path, arguments, sentence):
    uneven(tmp_path)
    with pytest.raises(UserError, match=re.escape(sentence)):
        table([str(tmp_path), f"out={tmp_path / 't'}", *arguments])
    assert not list(tmp_path.glob("t.*"))


def test_a_trial_of_a_private_search_has_no_epsilon_and_is_never_best(tmp_path):
    """That of the choice among trials is larger, and on the page of the search."""
    for lr, trial in ((0.1, "a"), (0.2, "b")):
        one = record(lr=lr, value=0.8 + lr)
        replace(one, config=one.config | {"trial": trial}).save(tmp_path)
    said = table([str(tmp_path), f"out={tmp_path / 't'}", "rows=optimizer.lr"])
    assert said.count("| see its search |") == 2
    assert "**" not in said
