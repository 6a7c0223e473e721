"""Ctrl-C at real commands: once, twice, early and late, at the whole group and at one process."""

import json
import signal
import time
from pathlib import Path

import pytest

from dpbench.runs.execution.attempt import attempt
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load
from dpbench.system.interrupts import RESUME_HINT

pytestmark = pytest.mark.slow

QUICK = 8.0
"""Seconds, where two are promised: other tests want the processor too."""

RUN = ["run", "model=logistic", "method=sgd", "batch_size=64"]
LONG = [*RUN, "epochs=60"]
ENDLESS = [*RUN, "epochs=20000"]
SAID = f"dpbench: {RESUME_HINT}"


def make(*overrides):
    """A run that nobody interrupts, in this process."""
    outcome = attempt(run_config(overrides))
    assert isinstance(outcome, Path), outcome


def at_work(folder, number=1):
    """Whether so many runs are under way."""
    return lambda: len(list(folder.glob("checkpoints/*/lock"))) >= number


def measured(folder):
    """What all records say, but how they were made, by name."""
    records = {path.name: json.loads(path.read_text()) for path in folder.glob("runs/*.json")}
    return {
        name: {key: said[key] for key in ("config", "metrics", "privacy", "history", "status")}
        for name, said in records.items()
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("seconds", "number"),
    [(0, signal.SIGINT), (0.05, signal.SIGTERM), (0.5, signal.SIGINT), (2, signal.SIGTERM)],
)
def test_a_signal_during_start_up_prints_one_sentence(seconds, number, command, tmp_path):
    one = command(*ENDLESS, f"results_dir={tmp_path}")
    time.sleep(seconds)
    one.press(number)
    pressed = time.monotonic()
    assert one.end() == (128 + number, [], [SAID])
    assert time.monotonic() - pressed < QUICK
    assert not one.alive()


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT]
    + [pytest.param(other, marks=pytest.mark.long) for other in (signal.SIGTERM, signal.SIGHUP)],
)
def test_an_interrupted_run_resumes_with_the_same_command(number, command, until, tmp_path):
    there = f"results_dir={tmp_path / 'there'}"
    one = command(*LONG, there, "checkpoint_minutes=0.001")
    until(lambda: any(tmp_path.glob("there/checkpoints/*/*.ckpt")))  # so it is training
    one.press(number)
    code, out, err = one.end()
    assert (code, out, err[-1]) == (128 + number, [], SAID)
    assert list(tmp_path.glob("there/checkpoints/*/*.ckpt"))
    assert command(*LONG, there).end()[0] == 0
    (record,) = map(load, tmp_path.glob("there/runs/*.json"))
    assert record.provenance["resumed"] == 1
    make(*LONG[1:], f"results_dir={tmp_path / 'whole'}")
    assert measured(tmp_path / "there") == measured(tmp_path / "whole")
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["runs"]


@pytest.mark.parametrize(
    ("pause", "group"),
    [(0.3, True), pytest.param(1.2, False, marks=pytest.mark.long)],
    ids=["group", "first process"],
)
def test_a_second_interrupt_ends_a_sweep_and_its_processes(pause, group, command, until, tmp_path):
    make(*RUN[1:], "epochs=1", f"results_dir={tmp_path}")
    before = {path: path.read_bytes() for path in tmp_path.glob("runs/*")}
    sweep = command(*ENDLESS, "-m", f"results_dir={tmp_path}", "seed=range(4)", "jobs=2")
    until(at_work(tmp_path, 2))
    sweep.press(group=group)
    time.sleep(pause)
    sweep.press(group=group)
    pressed = time.monotonic()
    code, out, err = sweep.end()
    assert time.monotonic() - pressed < QUICK
    assert (code, out, err[-1]) == (130, [], SAID)
    assert not [line for line in err if not line.startswith("dpbench: ")]
    until(lambda: not sweep.alive(), QUICK)
    assert {path: path.read_bytes() for path in tmp_path.glob("runs/*")} == before


@pytest.mark.long
def test_an_interrupted_sweep_saves_all_its_runs(command, until, tmp_path):
    sweep = [*LONG, "-m", f"results_dir={tmp_path}", "seed=range(2)", "jobs=2"]
    one = command(*sweep)
    until(at_work(tmp_path, 2))
    time.sleep(1)
    one.press(group=False)
    code, _, err = one.end()
    assert (code, err[-1]) == (130, SAID)
    assert not one.alive()
    before = {path: path.read_bytes() for path in tmp_path.glob("runs/*")}
    away = {path.parent.name for path in tmp_path.glob("checkpoints/*/*.ckpt")}
    assert away, "nothing was put away"
    code, out, err = command(*sweep).end()
    assert (code, len(out)) == (0, 2)
    assert all(line.startswith("dpbench: a table of this sweep: ") for line in err)
    after = {path: path.read_bytes() for path in tmp_path.glob("runs/*")}
    assert before.items() <= after.items()
    resumed = [load(path).provenance["resumed"] for path in after if path.stem in away]
    assert resumed == [1] * len(away)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_group_saves_all_runs_of_a_sweep(number, command, until, tmp_path):
    sweep = command(*ENDLESS, "-m", f"results_dir={tmp_path}", "seed=range(2)", "jobs=2")
    until(lambda: len(list(tmp_path.glob("checkpoints/*/steps"))) == 2)
    sweep.press(number)
    code, _, err = sweep.end()
    assert (code, err[-1]) == (128 + number, SAID)
    assert len(list(tmp_path.glob("checkpoints/*/*.ckpt"))) == 2
    assert not sweep.alive()
