"""Many runs: what is finished is left, what fails is listed, all else is done, each thing once."""

import os
import re

import pytest

from dpbench.runs.config.overrides import short_names
from dpbench.runs.execution import load_or_run as runs
from dpbench.runs.execution import local
from dpbench.runs.execution import sweep as sweeps
from dpbench.runs.execution.attempt import attempt
from dpbench.runs.records.reading import load
from dpbench.runs.training.progress import STEPS_FILE, StepsFile
from dpbench.system import progress
from dpbench.system.errors import UserError
from dpbench.system.lock import exclusive

SMALL = ["epochs=1", "model=logistic", "batch_size=512", "method=sgd"]


@pytest.fixture
def sweep(tmp_path):
    """sweep(*overrides, seeds=...): a sweep over seeds, into the test's own folder."""

    def make(*overrides, seeds=range(3), name="some"):
        fixed = [*SMALL, f"results_dir={tmp_path}", *overrides]
        return sweeps.plan_sweep(name, [[*fixed, f"seed={seed}"] for seed in seeds])

    return make


@pytest.fixture
def failing(monkeypatch):
    """failing({seed: error}): training with these seeds raises; all seeds that were trained."""
    trained = []

    def make(errors):
        fit = runs.fit

        def maybe(run, *rest):
            trained.append(run.seed)
            if run.seed in errors:
                raise errors[run.seed]
            return fit(run, *rest)

        monkeypatch.setattr(runs, "fit", maybe)
        return trained

    return make


def records(folder):
    return {path.name: path.read_bytes() for path in (folder / "runs").iterdir()}


def test_settings_of_execution_are_not_swept(tmp_path):
    """One of two values would be taken without a word."""
    fixed = [*SMALL, f"results_dir={tmp_path}"]
    twice = [[*fixed, "jobs=1", f"engine={engine}"] for engine in ("ghost", "ghost", "vmap")]
    assert len(sweeps.plan_sweep("some", twice[:2]).runs) == 1
    with pytest.raises(UserError, match="one run with several values of engine, by which no run"):
        sweeps.plan_sweep("some", twice)


@pytest.mark.parametrize("number", [0, 1])
def test_a_folder_in_the_place_of_a_record_is_refused_before_any_run(sweep, failing, number):
    trained = failing({})
    [*sweep().runs][number].mkdir(parents=True)
    with pytest.raises(UserError, match=r"\.json is a folder in the place of a file: move it, or"):
        sweeps.run_and_report(sweep("again=true"))
    assert trained == []


def test_failed_runs_are_listed_and_the_others_continue(sweep, failing, tmp_path):
    trained = failing({0: RuntimeError("out of luck\nand more"), 1: UserError("No such thing.")})
    heard = []
    said = sweeps.run_and_report(sweep(), heard.append)
    assert trained == [0, 1, 2]
    (path,) = heard
    assert load(path).config["seed"] == 2
    head, first, second = said.splitlines()
    listed = tmp_path / "failures" / "some.txt"
    assert head == (f"2 of 3 runs failed (listed in {listed}); rerun the same command to retry:")
    assert first.endswith("seed=0: RuntimeError: out of luck")
    assert second.endswith("seed=1: No such thing.")
    text = listed.read_text()
    assert text.count("dpbench run ") == 2
    assert "in maybe" in text, "where it failed"
    assert text.count("Traceback") == 1, "a refusal needs none"


@pytest.mark.slow
def test_failed_runs_are_retried_and_then_no_longer_listed(sweep, failing, tmp_path):
    errors = {1: RuntimeError("once")}
    trained = failing(errors)
    assert sweeps.run_and_report(sweep())
    before = records(tmp_path)
    errors.clear()
    heard = []
    assert sweeps.run_and_report(sweep(), heard.append) == ""
    assert trained == [0, 1, 2, 1]
    assert len(heard) == 3
    assert before.items() < records(tmp_path).items()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def shown_at_once(monkeypatch):
    """Progress is written and looked at all the time, as lines."""
    monkeypatch.setattr(progress, "display", progress.LogLines)
    monkeypatch.setattr(progress, "REDRAWN_EVERY", 0.001)
    monkeypatch.setattr(progress.LogLines, "interval", 0.0)
    monkeypatch.setattr("dpbench.training.progress.FIRST_SECONDS", 0)
    monkeypatch.setattr(StepsFile, "interval", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(2), [7]])
def test_the_runs_under_way_are_shown_by_their_steps(sweep, seeds, monkeypatch, capfd, tmp_path):
    shown_at_once(monkeypatch)
    monkeypatch.setattr(local, "one_by_one", lambda runs, wait: quietly(runs))
    another = tmp_path / "checkpoints" / next(iter(sweep(seeds=[9]).runs)).stem
    another.mkdir(parents=True)
    (another / STEPS_FILE).write_text("1 99")
    os.utime(another / STEPS_FILE, (2**32, 2**32))
    assert sweeps.run_and_report(sweep("epochs=60", seeds=seeds)) == ""
    said = capfd.readouterr().err
    for name in ["run"] if seeds == [7] else [f"seed={seed}" for seed in seeds]:
        assert re.search(rf"; {name}: step \d+ of 180", said)
    assert "of 99" not in said, "a run of another sweep"
    assert [*(tmp_path / "checkpoints").iterdir()] == [another]


def quietly(runs):
    return ((number, attempt(run)) for number, run in enumerate(runs))


def test_a_run_is_named_by_what_sets_it_apart_and_a_sweep_by_its_arguments():
    runs = [["a=1", "method=sgd", "seed=0"], ["a=1", "method=sgd", "seed=1"], ["a=1", "b=x y"]]
    assert short_names(runs) == ["method=sgd seed=0", "method=sgd seed=1", "'b=x y'"]
    names = {sweeps.name_of(given) for given in (["a=1", "b=2"], ["b=2", "a=1"])}
    assert len(names) == 1
    assert sweeps.name_of(["a=1"]) not in names


@pytest.mark.slow
def test_a_finished_sweep_trains_nothing(sweep, failing):
    sweeps.run_and_report(sweep())
    trained, heard = failing({}), []
    assert sweeps.run_and_report(sweep(), heard.append) == ""
    assert (trained, len(heard)) == ([], 3)
    sweeps.run_and_report(sweep("again=true"))
    assert trained == [0, 1, 2]


@pytest.mark.slow
def test_leftovers_of_killed_processes_are_removed_from_finished_sweeps(sweep, tmp_path):
    one = sweep()
    sweeps.run_and_report(one)
    left = tmp_path / "checkpoints" / next(iter(one.runs)).stem / "lock"
    left.parent.mkdir(parents=True)
    left.write_text("process 1 on nowhere")
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / ".some.txt.0123456789abcdef").touch()
    heard = []
    assert sweeps.run_and_report(sweep(), heard.append) == ""
    assert sorted(heard) == sorted(one.runs)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_one_reason_for_all_is_a_refusal(sweep, failing):
    failing(dict.fromkeys(range(3), UserError("No such thing.")))
    with pytest.raises(UserError, match=r"^No such thing\.$"):
        sweeps.run_and_report(sweep())


def test_a_run_that_is_named_twice_is_made_once(sweep, failing):
    trained = failing({})
    sweeps.run_and_report(sweep(seeds=[0, 0, 1]))
    assert trained == [0, 1]


def test_the_impossible_is_listed_too_and_refused_where_it_is_all(sweep, tmp_path):
    fixed = [*SMALL, f"results_dir={tmp_path}"]
    both = sweeps.plan_sweep("some", [fixed, [*fixed, "method=fairlens"]])
    said = sweeps.run_and_report(both)
    assert "1 of 2 runs failed" in said
    assert "to retry" not in said  # it would be refused again
    assert "method=fairlens: fairlens is defined for exactly 2 groups and digits has 10" in said
    with pytest.raises(UserError, match="fairlens is defined for exactly 2"):
        sweep("method=fairlens")


@pytest.mark.slow
def test_runs_that_differ_by_their_seed_alone_are_planned_once(sweep, monkeypatch):
    seen = []
    monkeypatch.setattr(sweeps, "plan", lambda run: seen.append(run.seed))
    sweep(seeds=range(5))
    assert seen == [0]
    with pytest.raises(UserError, match="seed must be a whole number"):
        sweep(seeds=[0, -1])


def test_runs_that_are_finished_are_not_planned(sweep, failing, monkeypatch):
    seen = []
    failing({})
    sweeps.run_and_report(sweep(seeds=[0]))
    monkeypatch.setattr(sweeps, "plan", lambda run: seen.append(run.seed))
    sweep(seeds=[0])
    assert seen == []
    sweep(seeds=[0, 1])
    assert seen == [1]
    sweep("again=true", seeds=[0])
    assert seen == [1, 0]


def at_another(one, folder):
    """Where another process is about to write a record, that record, and what ends its run."""
    sweeps.run_and_report(one)
    (theirs,) = (folder / "runs").iterdir()
    content = theirs.read_bytes()
    theirs.unlink()
    lock = exclusive(folder / "checkpoints" / theirs.stem / "lock")
    lock.__enter__()

    def end():
        theirs.write_bytes(content)
        lock.__exit__(None, None, None)

    return theirs, content, end


@pytest.mark.slow
def test_a_run_that_another_process_carries_out_comes_last(sweep, failing, tmp_path, monkeypatch):
    """Seed 0 is another's until seed 2 is done; it is then left as the other made it."""
    trained = failing({})
    theirs, content, end = at_another(sweep(seeds=[0]), tmp_path)

    told = []

    def heard(path):
        told.append(path)
        if load(path).config["seed"] == 2:
            end()

    trained.clear()
    assert sweeps.run_and_report(sweep(), heard) == ""
    assert trained == [1, 2]
    assert told[-1] == theirs
    assert len(told) == 3
    assert theirs.read_bytes() == content


def test_a_run_that_was_waited_for_is_not_made_again(sweep, failing, tmp_path, monkeypatch):
    """The other process ends just when this one begins to wait."""
    trained = failing({})
    theirs, _, end = at_another(sweep(seeds=[0]), tmp_path)

    def ended(message, **_):
        assert "waiting for it to end" in message
        end()

    monkeypatch.setattr("dpbench.system.lock.warnings.warn", ended)
    (run,) = sweep(seeds=[0]).runs.values()
    assert runs.load_or_run(run) == theirs
    assert trained == [0]


@pytest.mark.parametrize(
    ("runs", "sentence"),
    [
        ([["seed=0"], ["seed=x"]], "seed=x: seed must be a whole number"),
        (
            [["model=resnet9", "dataset=adult"], ["dataset=digits"]],
            "model=resnet9 dataset=adult: m",
        ),
        (
            [["seed=0", "optimizer.lr=-1"], ["seed=1", "optimizer.lr=-1"]],
            "seed=0: optimizer.lr mus",
        ),
        ([["optimizer.lr=-1"], ["optimizer.lr=1"]], "optimizer.lr=-1: optimizer.lr must be a"),
        ([["epochs=0"]], "epochs must be"),
    ],
)
def test_a_refusal_names_the_run_of_the_sweep(runs, sentence):
    with pytest.raises(UserError) as told:
        sweeps.plan_sweep("some", runs)
    assert str(told.value).startswith(sentence)


@pytest.mark.slow
def test_a_finished_sweep_is_answered_where_nothing_can_be_written(sweep, tmp_path, monkeypatch):
    sweeps.run_and_report(sweep())

    def refuse(*_, **__):
        raise UserError("it cannot be written")

    for name in ("check_writable", "write_atomically"):
        monkeypatch.setattr(sweeps, name, refuse)
    found = []
    assert sweeps.run_and_report(sweep(), found.append) == ""
    assert len(found) == 3
    with pytest.raises(UserError, match="it cannot be written"):
        sweeps.run_and_report(sweep(seeds=range(4)))
