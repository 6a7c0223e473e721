"""Runs as tasks: settings and answers are text, and an answer counts only with its own record."""

import math
import os
import pickle
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import yaml

from dpbench.runs.execution import sweep as sweeps
from dpbench.runs.execution import task as tasks_of_clusters
from dpbench.runs.execution.launcher import Failure
from dpbench.runs.execution.run_config import RunConfig, run_config
from dpbench.runs.execution.task import COMMAND, Tasks
from dpbench.runs.records.reading import load
from dpbench.system.files import digest_of

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["epochs=1", "model=logistic", "batch_size=512", "method=sgd"]


@pytest.fixture
def hasty(monkeypatch):
    """Files of a task that has ended are seen at once, or never."""
    monkeypatch.setattr(tasks_of_clusters, "PATIENCE", 0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The configuration of a run that has a record."""
    run = run_config([*SMALL, f"results_dir={tmp_path_factory.mktemp('results')}"])
    assert sweeps.run_and_report(sweeps.plan_sweep("one", [run.overrides])) == ""
    return run


def answers(tasks, number, what):
    (tasks.folder / f"{number}.json").write_bytes(msgspec.json.encode(what))


def test_settings_are_text_in_a_new_folder_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPBENCH_DATA", "data")
    odd = {"labels": {0: "1e5", 1: "no"}, "rates": [1e-7, math.inf], "none": None}
    run = RunConfig(("seed=3",), {"results_dir": "r", "data_dir": None, "odd": odd})
    first, second = (Tasks.written(Path("r/launched"), [run], wait) for wait in (True, False))
    assert first.folder != second.folder
    assert stat.S_IMODE(first.folder.stat().st_mode) == 0o700
    settings = yaml.safe_load((first.folder / "0.yaml").read_text())
    places = {"results_dir": f"{tmp_path}/r", "data_dir": f"{tmp_path}/data"}
    assert settings == {"overrides": ["seed=3"], "plain": {**places, "odd": odd}, "wait": True}


def test_an_answer_counts_only_with_the_record_that_it_names(finished, tmp_path, hasty):
    missing = finished.changed(results_dir=str(tmp_path))
    tasks = Tasks.written(tmp_path / "launched", [finished, finished, missing, finished], False)
    own = digest_of(finished.path)
    for number, said in enumerate((own, "0" * 64, own, Failure("no", "trace", busy=True))):
        answers(tasks, number, said)
    ended = dict(tasks.outcomes(lambda: dict.fromkeys(range(4), "COMPLETED")))
    assert ended[0] == finished.path
    for number, run in ((1, finished), (2, missing)):
        assert f"its record {run.path} is not to be seen on this machine" in ended[number].reason
    assert ended[3] == Failure("no", "trace", busy=True)
    assert tasks.folder.exists()


def test_an_old_record_is_no_answer(finished, hasty):
    """Not even of the same run: with again=true it is repeated."""
    tasks = Tasks.written(finished.results / "launched", [finished], False)
    tasks.log(0).write_text("killed by the kernel\n")
    ((_, failure),) = tasks.outcomes(lambda: {0: "OUT_OF_MEMORY"})
    log = tasks.log(0)
    said = f"task 0 of the cluster failed (OUT_OF_MEMORY): see {log}."
    assert failure == Failure(said, "killed by the kernel\n")


def test_a_task_that_is_requeued_after_all_has_not_ended(finished, monkeypatch):
    monkeypatch.setattr(tasks_of_clusters, "PATIENCE", 5)
    now = iter(range(0, 100, 4))
    monkeypatch.setattr(tasks_of_clusters.time, "monotonic", lambda: next(now))
    tasks = Tasks.written(finished.results / "launched", [finished], False)
    states = [{0: "NODE_FAIL"}, {0: "NODE_FAIL"}, {}, {0: "FAILED"}, {0: "FAILED"}, {}]

    def ended():
        state = states.pop(0)
        if not states:
            answers(tasks, 0, digest_of(finished.path))
        return state

    assert list(tasks.outcomes(ended)) == [(0, finished.path)]
    assert not tasks.folder.exists()


def test_files_of_tasks_that_cannot_be_read_do_not_end_the_others(finished, hasty):
    """As a file on NFS that was replaced, or a folder that somebody tidied up."""
    tasks = Tasks.written(finished.results / "launched", [finished] * 3, False)
    (tasks.folder / "0.json").write_bytes(b'"ab')
    (tasks.folder / "1.json").mkdir()
    outcomes = tasks.outcomes(lambda: {0: "COMPLETED", 1: "COMPLETED"})
    for number in (0, 1):
        assert f"task {number} of the cluster failed (COMPLETED)" in next(outcomes)[1].reason
    shutil.rmtree(tasks.folder)
    ((_, lost), *_) = tasks.outcomes(lambda: dict.fromkeys(range(3), "FAILED"))
    assert "task 0 of the cluster failed (FAILED)" in lost.reason


class Planted:
    def __reduce__(self):
        return Path("PWNED").touch, ()


@pytest.mark.slow
def test_nothing_in_a_results_folder_is_unpickled_or_taken_for_an_answer(tmp_path, monkeypatch):
    """Also not where earlier versions looked for the results of tasks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    launched = tmp_path / "results" / "launched"
    launched.mkdir(parents=True)
    for name in ("1_0_0_result.pkl", "0.json", "0.yaml", f"{os.getpid()}_0_0_result.pkl"):
        (launched / name).write_bytes(pickle.dumps(Planted()))
    fixed = [*SMALL, "launcher=slurm", "launcher.cluster=local", "results_dir=results"]
    heard = []
    sweep = sweeps.plan_sweep("some", [[*fixed, "seed=50"]])
    assert sweeps.run_and_report(sweep, heard.append) == ""
    assert [load(path).config["seed"] for path in heard] == [50]
    assert not (tmp_path / "PWNED").exists()


def test_no_module_unpickles_a_file_but_for_verified_downloads():
    """`pickle` elsewhere copies configurations within a process; weights and arrays are data."""
    sources = {path: path.read_text() for path in (ROOT / "dpbench").rglob("*.py")}
    modules = r"^ *(import|from) (\w*pickle|dill|joblib|marshal|shelve)\b"
    readers = re.compile(modules, re.MULTILINE)
    found = {path.name for path, text in sources.items() if readers.search(text)}
    assert found == {"compose.py", "chosen_options.py", "rerun.py", "pickled.py"}
    for path, text in sources.items():
        assert "allow_pickle" not in text, path
        for call in re.findall(r"torch\.load\([^)]*\)?[^)]*\)", text):
            assert "weights_only=True" in call, path


ALL = [signal.SIGUSR2, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, signal.SIGTERM))]


@pytest.mark.slow
@pytest.mark.parametrize("number", ALL)
def test_each_signal_that_ends_a_task_writes_a_checkpoint_and_no_answer(number, tmp_path):
    run = run_config([*SMALL, "epochs=1000000", f"results_dir={tmp_path}"])
    tasks = Tasks.written(tmp_path / "launched", [run], False)
    process = subprocess.Popen(
        [sys.executable, *COMMAND, str(tasks.folder), "0"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=default_signals,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 120
        while not (run.checkpoints / "steps").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    finally:
        process.kill()
        process.wait()
    assert list(run.checkpoints.glob("*.ckpt"))
    assert not list(tasks.folder.glob("*.json"))


def default_signals():
    for number in (signal.SIGINT, signal.SIGHUP):  # which nohup ignores
        signal.signal(number, signal.SIG_DFL)
