"""Many runs: what is finished is left, what fails is listed, all else is done, each thing once."""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dpbench.config.compose import compose
from dpbench.errors import UserError
from dpbench.execution import local
from dpbench.execution import run as runs
from dpbench.execution import sweep as sweeps
from dpbench.execution.attempt import attempt
from dpbench.execution.running_steps import names_by_digest, short_names
from dpbench.records.digest import digest
from dpbench.records.reading import load
from dpbench.system import progress
from dpbench.system.lock import exclusive
from dpbench.training import steps_file

ROOT = Path(__file__).resolve().parents[2]
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


def test_what_fails_is_listed_and_the_rest_is_done(sweep, failing, tmp_path):
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
def test_what_failed_is_tried_again_and_then_listed_no_more(sweep, failing, tmp_path):
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
    monkeypatch.setattr(progress, "display", progress.Lines)
    monkeypatch.setattr(progress, "REDRAWN_EVERY", 0.001)
    monkeypatch.setattr(progress.Lines, "interval", 0.0)
    monkeypatch.setattr("dpbench.training.progress.FIRST_SECONDS", 0)
    monkeypatch.setattr(steps_file.StepsFile, "interval", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(2), [7]])
def test_the_runs_under_way_are_shown_by_their_steps(sweep, seeds, monkeypatch, capfd, tmp_path):
    shown_at_once(monkeypatch)
    monkeypatch.setattr(local, "one_by_one", lambda runs, wait: quietly(runs))
    digests = [path.stem for path in sweep(seeds=[9]).runs]
    another = tmp_path / "checkpoints" / digests[0]
    another.mkdir(parents=True)
    (another / steps_file.NAME).write_text("1 99")
    os.utime(another / steps_file.NAME, (2**32, 2**32))
    assert sweeps.run_and_report(sweep("epochs=60", seeds=seeds)) == ""
    said = capfd.readouterr().err
    for name in ["run"] if seeds == [7] else [f"seed={seed}" for seed in seeds]:
        assert re.search(rf"; {name}: step \d+ of 180", said)
    assert "of 99" not in said, "a run of another sweep"
    assert [*(tmp_path / "checkpoints").iterdir()] == [another]


def quietly(runs):
    return ((number, attempt(run)) for number, run in enumerate(runs))


def test_a_run_is_named_by_what_sets_it_apart():
    runs = [["a=1", "method=sgd", "seed=0"], ["a=1", "method=sgd", "seed=1"], ["a=1", "b=x y"]]
    assert short_names(runs) == ["method=sgd seed=0", "method=sgd seed=1", "'b=x y'"]
    valid = [["seed=0", "epochs=2"], ["seed=1", "epochs=2"]]
    names = names_by_digest([*valid, ["epoch=2"]])
    assert names == {
        digest(compose(run)): name
        for run, name in zip(valid, ["seed=0 epochs=2", "seed=1 epochs=2"], strict=True)
    }


@pytest.mark.slow
def test_a_finished_sweep_trains_nothing(sweep, failing):
    sweeps.run_and_report(sweep())
    trained, heard = failing({}), []
    assert sweeps.run_and_report(sweep(), heard.append) == ""
    assert (trained, len(heard)) == ([], 3)
    sweeps.run_and_report(sweep("again=true"))
    assert trained == [0, 1, 2]


@pytest.mark.slow
def test_what_killed_processes_left_is_swept_away_though_all_is_finished(sweep, tmp_path):
    one = sweep()
    sweeps.run_and_report(one)
    digest = next(iter(one.runs)).stem
    left = tmp_path / "checkpoints" / digest / "lock"
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


def test_a_name_is_that_of_the_arguments():
    names = {sweeps.name_of(given) for given in (["a=1", "b=2"], ["b=2", "a=1"])}
    assert len(names) == 1
    assert sweeps.name_of(["a=1"]) not in names


def limited(folder, *overrides, size):
    """The sweep in a process that can write no more than so many bytes to a file."""
    script = f"""
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
        from dpbench.cli.main import main
        main()
    """
    words = ["run", "-m", *SMALL, f"results_dir={folder}", *overrides]
    return start(["-c", textwrap.dedent(script), *words])


def start(arguments):
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_a_disk_that_is_full_is_said_before_training(tmp_path):
    full = limited(tmp_path, "seed=0,1", size=1000)
    out, err = full.communicate()
    assert (full.returncode, out) == (2, "")
    assert "cannot be written (File too large); set results_dir" in err
    assert len(err.splitlines()) == 1


# Notes every training in a file, and then trains.
NOTING = """
import sys
from dpbench.execution import run as runs
fit, note = runs.fit, sys.argv.pop(1)
def noted(run, *rest):
    with open(note, "a") as file:
        file.write(f"{run.seed}\\n")
    return fit(run, *rest)
runs.fit = noted
from dpbench.cli.main import main
main()
"""


@pytest.mark.slow
def test_two_sweeps_at_once_do_nothing_twice_and_lose_nothing(tmp_path):
    words = ["run", "-m", *SMALL, "epochs=40", f"results_dir={tmp_path}", "seed=0,1,2,3"]
    both = [start(["-c", NOTING, str(tmp_path / "note"), *words]) for _ in range(2)]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sorted((tmp_path / "note").read_text().split()) == ["0", "1", "2", "3"]
    assert [sorted(out.split()) for out, _ in said] == [
        sorted(map(str, (tmp_path / "runs").iterdir()))
    ] * 2
    assert all(load(path) for path in (tmp_path / "runs").iterdir())
    assert not (tmp_path / "checkpoints").exists()


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


MAIN = """
from dpbench.cli.main import main
if __name__ == "__main__":
    main()
"""


# Shows steps at once, in each process, whose runs end only when the test has seen them.
SHOWING = """
import os, time
from pathlib import Path
from dpbench.system import progress
from dpbench.training import progress as of_a_run, steps_file
progress.Lines.interval = steps_file.StepsFile.interval = of_a_run.FIRST_SECONDS = 0
progress.REDRAWN_EVERY = 0.1
stop = steps_file.StepsFile.stop
def when_seen(file):
    end = time.monotonic() + 120
    while not Path(os.environ["SEEN"]).exists() and time.monotonic() < end:
        time.sleep(0.05)
    stop(file)
steps_file.StepsFile.stop = when_seen
"""


@pytest.mark.slow
def test_runs_in_other_processes_are_shown_by_their_steps(tmp_path, monkeypatch):
    script, results, seen = (tmp_path / name for name in ("showing.py", "results", "seen"))
    script.write_text(SHOWING + MAIN)  # a file, which the other processes run too
    monkeypatch.setenv("SEEN", str(seen))
    words = ["run", "-m", *SMALL, f"results_dir={results}", "seed=0,1", "jobs=2"]
    err, shown = "", [rf"dpbench: runs: 0 of 2.*; seed={seed}: step [1-3] of 3" for seed in (0, 1)]
    with start([script, *words]) as both:
        for line in both.stderr:
            err += line
            if all(re.search(each, err) for each in shown):
                seen.touch()
        out = both.stdout.read()
    assert seen.exists(), err
    assert (both.returncode, len(out.splitlines())) == (0, 2)
    assert {path.name for path in results.iterdir()} == {"runs", "sweeps"}


@pytest.mark.long
def test_a_killed_sweep_goes_on_where_it_was(tmp_path):
    """In two processes; nobody trains on when the first process is gone."""
    words = ["run", "-m", *SMALL, "epochs=60", f"results_dir={tmp_path}", "seed=range(4)", "jobs=2"]
    killed = start(["-c", MAIN, *words])
    until(lambda: list(tmp_path.glob("runs/*.json")))
    killed.kill()
    killed.communicate()
    time.sleep(1.5)  # in which workers see that they are alone
    before = records(tmp_path)
    assert 1 <= len(before) < 4, "ended before it was killed"
    last = start(["-c", MAIN, *words])
    out, err = last.communicate()
    assert (last.returncode, err.count("\n")) == (0, 1)
    assert err.startswith(f"dpbench: a table of this sweep: dpbench table {tmp_path} sweep=run-")
    assert len(out.splitlines()) == 4
    after = records(tmp_path)
    assert before.items() <= after.items()
    assert sorted(json.loads(text)["config"]["seed"] for text in after.values()) == [*range(4)]


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
