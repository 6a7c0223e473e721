"""A run that is tracked, and one that is killed and goes on."""

import math

import pytest

from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record
from dpbench.runs.records.trackers.tracker import RunInfo

FINISHED = Record(
    config={"choices": {"dataset": "digits", "model": "mlp", "method": "dpsgd"}, "seed": 0},
    metrics={"test/accuracy": 0.5},
    privacy={"steps": 30, "rdp": 2.0, "ledger": [{"times": 30}]},
    provenance={},
    status="complete",
)


@pytest.fixture
def tracked(tmp_path):
    """tracked(name): the record of a run with that tracker; its files are under tmp_path."""

    def make(name, *overrides):
        small = ["epochs=2", "model=logistic", "batch_size=512", "tracker_curves=false"]
        there = [f"results_dir={tmp_path}", f"tracker={name}"]
        return load(load_or_run(run_config([*small, *there, *overrides])))

    return make


@pytest.fixture
def interrupted(tmp_path):
    """interrupted(tracker, end): two epochs are told, the process is gone after the first one's
    checkpoint, and another one tells of all three. end(log): what the death of a process does."""

    def make(tracker, end=lambda log: None):
        info = RunInfo("abc", "a run", "table/dpsgd", ("dpsgd",), {"epochs": 3}, tmp_path)
        log = tracker.start(info)
        log.log(10, {"train/loss": math.nan})
        log.log(20, {"train/loss": 2.0})
        end(log)
        log = tracker.start(info)
        for step, loss in ((10, math.nan), (20, 2.0), (30, 1.0)):
            log.log(step, {"train/loss": loss})
        log.log(0, {"step/bias": 0.25})  # diagnostics come last
        log.finish(FINISHED)

    return make
