"""Runs in other processes, which may die."""

import multiprocessing
import os
import threading
import time
from contextlib import suppress

import pytest

from dpbench.runs.execution.launcher import Failure
from dpbench.runs.execution.local import VISIBLE, Local, Slot, keep_one_gpu, workers
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load

SMALL = ["model=logistic", "batch_size=512", "method=sgd"]


@pytest.mark.slow
def test_a_run_whose_process_is_killed_fails_alone(tmp_path):
    fixed = [*SMALL, f"results_dir={tmp_path}"]

    def kill_the_first():
        while not multiprocessing.active_children():
            time.sleep(0.01)
        multiprocessing.active_children()[0].kill()

    killer = threading.Thread(target=kill_the_first, daemon=True)
    killer.start()
    both = [run_config([*fixed, f"epochs={epochs}"]) for epochs in (100000, 1)]
    with workers(1) as attempts:
        outcomes = dict(attempts(both, False))
    killer.join()
    assert isinstance(outcomes[0], Failure)
    assert "its process was killed (exit code -9)" in outcomes[0].reason
    assert load(outcomes[1]).provenance["threads"] == 1
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_running_processes_are_stopped_at_the_end(tmp_path):
    forever = [*SMALL, f"results_dir={tmp_path}", "epochs=100000"]
    with workers(2) as attempts:
        results = attempts([run_config([*forever, f"seed={seed}"]) for seed in range(3)], False)

        def watch():
            with suppress(RuntimeError):  # the block may end before the last run is submitted
                list(results)

        threading.Thread(target=watch, daemon=True).start()
        while not multiprocessing.active_children():
            time.sleep(0.01)
    assert not multiprocessing.active_children()
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize(
    ("visible", "found", "expected"),
    [
        ("4,7", 0, ["4", "7", "4"]),
        (None, 3, ["0", "1", "2"]),
        ("", 0, [""] * 3),
        ("5", 1, ["5"] * 3),
        (None, 1, [None] * 3),
        (None, 0, [None] * 3),
    ],
)
def test_jobs_use_the_gpus_by_turns(visible, found, expected, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: found)
    kept = []
    for number in range(3):
        monkeypatch.delenv(VISIBLE, raising=False)
        if visible is not None:
            monkeypatch.setenv(VISIBLE, visible)
        keep_one_gpu(number)
        kept.append(os.environ.get(VISIBLE))
    assert kept == expected


def test_every_slot_has_a_number_of_its_own(monkeypatch):
    asked = []
    monkeypatch.setattr("dpbench.execution.local.Worker", lambda *about: asked.append(about[2:]))
    for number in range(3):
        Slot(number)._started()
    assert asked == [(0,), (1,), (2,)]


def test_one_job_is_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr("dpbench.execution.local.workers", lambda jobs: pytest.fail("others"))
    with Local().start(1, tmp_path) as attempts:
        run = run_config([*SMALL, "epochs=1", f"results_dir={tmp_path}"])
        ((number, path),) = attempts([run], True)
    assert number == 0
    assert load(path)
