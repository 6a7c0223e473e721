"""`dpbench search`, as a user types it."""

import shlex
from dataclasses import replace

import pandas as pd
import pytest

from dpbench.comparison.dashboard.summarise import Summary
from dpbench.comparison.search.command import search
from dpbench.comparison.search.report import at_edge, render
from dpbench.comparison.search.request import parse
from dpbench.comparison.search.selection import Trial
from dpbench.comparison.tables.data import SearchData, read_json
from dpbench.comparison.tables.sweep.command import table
from dpbench.runs.config.compose import compose
from dpbench.runs.config.overrides import expand
from dpbench.runs.execution import load_or_run as runs
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.runs.records.reading import load
from dpbench.system.errors import UserError
from tests.comparison.tables.sweep.made_up import record
from tests.omissions import extra

SMALL = ["epochs=1", "model=logistic", "batch_size=512"]
LR = "optimizer.lr=tag(log,interval(1e-2,1))"


@pytest.fixture
def folder(tmp_path):
    return f"results_dir={tmp_path}"


def records(folder):
    return {path.name: path.read_bytes() for path in (folder / "runs").iterdir()}


@pytest.mark.slow
def test_a_search_writes_all_trials_best_first_and_the_chosen_command(folder, tmp_path):
    text = search([*SMALL, "N=3", "extend=0", LR, "seed=0,1", "name=some", folder])
    assert (tmp_path / "search" / "some.md").read_text() == text
    data = read_json(tmp_path / "search" / "some.json", SearchData)
    assert f"Chosen: trial {data.chosen}." in text
    assert text.startswith(f"# Search: {', '.join(data.choices.values())}\n")
    assert all(f"`{key}={range_}`" in text for key, range_ in data.ranges.items())
    rows = pd.read_csv(tmp_path / "search" / "some.csv")
    assert sorted(rows["trial"]) == [1, 2, 3]
    assert rows["n"].tolist() == [2, 2, 2]
    assert rows["validation/accuracy"].is_monotonic_decreasing
    assert "The privacy cost of this selection (3 trials) is not in epsilon." in text

    # The numbers are those of the records.
    seen = [load(tmp_path / "runs" / f"{name}.json") for name in rows["records"][0].split()]
    accuracies = [record.metrics["validation/accuracy"] for record in seen]
    assert [record.config["seed"] for record in seen] == [0, 1]
    assert rows["validation/accuracy"][0] == pytest.approx(sum(accuracies) / 2)
    assert {record.config["optimizer"]["lr"] for record in seen} == {rows["optimizer.lr"][0]}

    # The command takes the chosen settings to the test set and to all training examples.
    (line,) = [line for line in text.splitlines() if line.startswith("dpbench run ")]
    (best, _) = expand(shlex.split(line)[3:])
    config = compose(best)
    assert config["optimizer"]["lr"] == rows["optimizer.lr"][0]
    assert (config["validation"], config["epochs"], config["seed"]) == (None, 1, 0)
    assert str(tmp_path) not in text, "pages show no paths"


def test_a_chosen_number_at_the_edge_of_what_was_tried_is_told():
    trials = [
        Trial(number, {"optimizer.lr": lr, "method.bound": str(bound), "model": model}, {})
        for number, (lr, bound, model) in enumerate(
            [("0.1", 1, "mlp"), ("1e-2", 2, "logistic"), ("1", "4.0", "mlp"), ("0.1", 3, "mlp")]
        )
    ]
    assert at_edge(trials[0], trials, ()) == [
        "`method.bound=1` is the smallest value of 4 that were tried: the best may be below it."
    ]
    assert [said.split("`")[1] for said in at_edge(trials[2], trials, ())] == [
        *("optimizer.lr=1", "method.bound=4.0")
    ]
    assert at_edge(trials[3], trials, ()) == at_edge(trials[0], trials[:1], ()) == []


@pytest.mark.parametrize("rule", ["best_validation", "best_worst_group"])
def test_a_search_of_a_regression_says_that_the_loss_decides(rule):
    request = parse([*SMALL, "dataset=wine", LR, f"rule={rule}", "N=2"])
    one = record()
    one.metrics.clear()
    one.metrics["validation/loss"] = 0.5
    page = render(request, [Trial(1, {"optimizer.lr": "0.1"}, {"0": one})])["md"].decode()
    assert f"Rule `{rule}`: lowest mean validation loss over all seeds, since a regression" in page
    assert "| trial | optimizer.lr | loss | n |" in page


@pytest.mark.slow
def test_a_search_a_table_and_the_report_choose_the_same_setting(folder, tmp_path):
    few = ["N=6", "extend=0", "finalists=3", "final_seeds=2", "name=some"]
    search([*SMALL, *few, "optimizer.lr=tag(log,interval(0.3,1))", folder])
    tried = [load(path) for path in (tmp_path / "runs").glob("*.json")]
    tested = {
        trial.config["optimizer"]["lr"]: replace(
            trial,
            config=trial.config | {"validation": None, "seed": 0},
            # A metric that tells the setting.
            metrics={"test/accuracy": trial.config["optimizer"]["lr"] / 10},
            calibration={},
        )
        for trial in tried
    }
    summary = Summary(lambda config: "")
    for one in [*tested.values(), *tried]:
        one.save(tmp_path)
        summary.add(one)
    table([str(tmp_path), "best=validation", f"out={tmp_path / 't'}"])
    shown = pd.read_csv(tmp_path / "t.csv")["mean"][0] / 10
    (best,) = (one.group.first for one in summary.contests[0].candidates)

    chosen = read_json(tmp_path / "search" / "some.json", SearchData).chosen
    rows = pd.read_csv(tmp_path / "search" / "some.csv")
    rate = rows[rows["trial"] == chosen]["optimizer.lr"].iloc[0]
    assert shown == pytest.approx(rate)
    assert 10 * best.metrics["test/accuracy"] == pytest.approx(rate)


@pytest.mark.slow
def test_a_trial_is_a_plain_run_with_a_validation_split(folder, tmp_path):
    search([*SMALL, "N=1", LR, "validation=0.25", "name=some", folder])
    (name,) = records(tmp_path)
    rows = pd.read_csv(tmp_path / "search" / "some.csv")
    chosen = f"optimizer.lr={rows['optimizer.lr'][0]}"
    elsewhere = tmp_path / "elsewhere"
    plain = load_or_run(run_config([*SMALL, chosen, "validation=0.25", f"results_dir={elsewhere}"]))
    assert plain.name == name
    of_search, of_run = (load(path / "runs" / name) for path in (tmp_path, elsewhere))
    assert (of_search.metrics, of_search.history) == (of_run.metrics, of_run.history)
    splits = {metric.partition("/")[0] for metric in of_search.metrics}
    assert splits == {"validation", "train_set"}


@pytest.mark.slow
@pytest.mark.parametrize("private", [False, True])
def test_the_trials_under_way_are_shown_and_no_other_runs(private, folder, tmp_path, monkeypatch):
    asked = []

    def spied(results, names):
        asked.append(names)
        return lambda: []

    monkeypatch.setattr("dpbench.execution.sweep.running_steps", spied)
    rates = "optimizer.lr=0.125,0.5"
    settings = ["private=true", "law=poisson", "trials=3"] if private else ["N=2"]
    search([*SMALL, *settings, rates, "name=some", folder])
    (names,) = asked
    shown = {names[file.partition(".")[0]].split()[0] for file in records(tmp_path)}
    # Its key is random: a private search of a single trial names what it has alone, a run.
    assert shown <= {"optimizer.lr=0.125", "optimizer.lr=0.5"} or (private and shown == {"run"})
    assert len(shown) == 2 or private
    assert digest(compose(["seed=1"])) not in names


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on_where_it_was(folder, tmp_path, monkeypatch):
    asked = [*SMALL, "N=4", "extend=0", LR, "name=some", folder]
    made = []

    def killed(run, *rest):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(run)
        return load_or_run(run, *rest)

    monkeypatch.setattr(runs, "load_or_run", killed)
    with pytest.raises(KeyboardInterrupt):
        search(asked)
    monkeypatch.undo()
    before = records(tmp_path)
    assert len(before) == 2

    text = search(asked)
    after = records(tmp_path)
    assert before.items() < after.items()
    assert len(after) == 4
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))
    assert search(asked) == text
    # More trials of the same search begin with the same ones.
    assert search([*asked, "N=3"]).count("| 2 |") == 1
    assert records(tmp_path) == after


@pytest.mark.slow
def test_failed_trials_are_listed_and_the_others_continue(folder, tmp_path, monkeypatch):
    fit = runs.fit

    def crash(run, *rest):
        if run.config["optimizer"]["lr"] == 0.25:
            raise RuntimeError("out of something\nand more")
        return fit(run, *rest)

    monkeypatch.setattr("dpbench.execution.load_or_run.fit", crash)
    asked = [*SMALL, "method=sgd", "optimizer.lr=-1,0.25,0.5,1e38", "name=some", folder]
    text = search(asked)
    rows = pd.read_csv(tmp_path / "search" / "some.csv").set_index("optimizer.lr")
    assert rows["failed"].fillna("").to_dict() == {
        -1: "seed 0: optimizer.lr must be a positive number, got -1.",
        0.25: "seed 0: RuntimeError: out of something",
        0.5: "",
        1e38: "seed 0: diverged",
    }
    assert rows.index[0] == 0.5
    assert rows["n"].to_dict() == {-1: 0, 0.25: 0, 0.5: 1, 1e38: 0}
    assert "optimizer.lr=0.5 seed=0" in text
    assert "(4 trials)" in text


@pytest.mark.slow
def test_nothing_is_chosen_where_every_trial_diverged(folder):
    text = search([*SMALL, "method=sgd", "optimizer.lr=1e38,2e38", folder])
    assert "none is chosen" in text
    assert "dpbench run" not in text
    assert "(2 trials) is not in epsilon" in text


@pytest.mark.slow
def test_a_setting_need_not_be_there_in_every_trial(folder):
    text = search([*SMALL, "method=sgd,dpsgd", "method.bound=0.5,1", folder])
    assert text.count("method.bound is not a setting") == 2
    assert "method=dpsgd method.bound=" in text


@pytest.mark.slow
def test_options_may_be_named_by_a_pattern():
    (one,) = parse(["method=glob(dpsgd_glob*)"]).space.ranges
    assert one.values == ("dpsgd_global", "dpsgd_global_adapt")


def test_a_table_s_settings_can_be_searched_around_and_intervals_are_no_sweep():
    asked = parse(["+table=misalignment_table5", "method=dpsgd", "optimizer.lr=0.4,0.8"])
    assert asked.config["choices"]["dataset"] == "dutch"
    assert asked.command({"optimizer.lr": "0.8"}) == (
        "dpbench run +table=misalignment_table5 method=dpsgd optimizer.lr=0.8 seed=0"
    )
    with pytest.raises(UserError, match=r"is an interval: use dpbench search\."):
        expand([LR])


def test_a_search_goes_by_what_it_is():
    plain = [LR, "model=logistic"]
    names = {
        parse([*plain, *more]).name
        for more in ([], ["seed=0,1"], ["epochs=3"], ["draw=1"], ["rule=lowest_validation_loss"])
    }
    assert len(names) == 5
    assert parse([*plain, "N=99", "jobs=2"]).name == parse(plain).name
    assert parse(list(reversed([*plain, "method=a,b".replace("a,b", "sgd,dpsgd")]))).space == (
        parse([*plain, "method=sgd,dpsgd"]).space
    )


@pytest.mark.long
def test_several_processes_give_the_same_search(tmp_path):
    asked = [*SMALL, "N=3", LR, "name=some"]
    one, two = (
        search([*asked, f"jobs={jobs}", f"results_dir={tmp_path / str(jobs)}", "threads=1"])
        for jobs in (1, 2)
    )
    assert one.replace("/1 ", "/2 ").replace("/1`", "/2`") == two
    assert records(tmp_path / "1").keys() == records(tmp_path / "2").keys()


@pytest.mark.slow
def test_optuna_s_sampler_resumes_by_the_records_alone(folder, tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason=extra("search"))
    monkeypatch.setattr("dpbench.search.samplers.STARTUP", 2)
    asked = [*SMALL, "by=tpe", "extend=0", LR, "name=some", folder]
    search([*asked, "N=3"])
    before = records(tmp_path)
    text = search([*asked, "N=5"])
    assert before.items() < records(tmp_path).items()
    assert len(records(tmp_path)) == 5
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))
    assert search([*asked, "N=5"]) == text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([LR, "n=4"], "n is not a setting of search: did you mean N"),
        (["lr=0.1,1"], "lr cannot be searched: did you mean optimizer.lr"),
    ],
)
def test_what_cannot_be_searched_is_refused_from_python_too(words, sentence):
    with pytest.raises(UserError, match=sentence):
        search(words)


def test_a_folder_that_cannot_be_written_is_refused_before_any_trial(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))
    with pytest.raises(UserError, match="cannot be written"):
        search([LR, f"results_dir={tmp_path / 'file'}"])
