"""Sweeps in processes of their own: two at once, one that is killed, one without disk space."""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from dpbench.runs.records.reading import load

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["epochs=1", "model=logistic", "batch_size=512", "method=sgd"]


def records(folder):
    return {path.name: path.read_bytes() for path in (folder / "runs").iterdir()}


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
from dpbench.runs.execution import load_or_run as runs
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
from dpbench.runs.training import progress as of_a_run
progress.LogLines.interval = of_a_run.StepsFile.interval = of_a_run.FIRST_SECONDS = 0
progress.REDRAWN_EVERY = 0.1
stop = of_a_run.StepsFile.stop
def when_seen(file):
    end = time.monotonic() + 120
    while not Path(os.environ["SEEN"]).exists() and time.monotonic() < end:
        time.sleep(0.05)
    stop(file)
of_a_run.StepsFile.stop = when_seen
"""


@pytest.mark.long
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
