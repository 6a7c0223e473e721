"""One run, killed in the middle and started again, is the same in every tracker."""

import importlib.util
from signal import SIGKILL

import pandas as pd
import pytest

from tests.omissions import extra

pytest.importorskip("wandb", reason=extra("tracking"))

from dpbench.runs.config.search_path import options
from tests.faults.killed_run import KilledRun
from tests.runs.records.trackers.test_tensorboard import events
from tests.runs.records.trackers.test_wandb import offline

NUMBERS = ("train/loss", "test/accuracy")

pytestmark = pytest.mark.slow


def by_csv(folder) -> dict:
    (path,) = set(folder.glob("csv/*.csv")) - set(folder.glob("csv/*-reliability.csv"))
    table = pd.read_csv(path).set_index("step")
    return {name: table[name].dropna().to_dict() for name in NUMBERS}


def by_tensorboard(folder) -> dict:
    (path,) = {file.parent for file in folder.glob("tensorboard/**/events*")}
    kept = events(path)
    return {name: {e.step: e.value for e in kept.Scalars(name)} for name in NUMBERS}


def by_wandb(folder) -> dict:
    ((_, history, summary, _),) = offline(folder)
    rows = {name: {row["step"]: row[name] for row in history if name in row} for name in NUMBERS}
    last = max(rows["train/loss"])
    rows["test/accuracy"].setdefault(last, float(summary["test/accuracy"]))
    return rows


def by_mlflow(folder) -> dict:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("dpbench").experiment_id])
    history = {name: client.get_metric_history(run.info.run_id, name) for name in NUMBERS}
    return {name: {point.step: point.value for point in points} for name, points in history.items()}


READERS = {"csv": by_csv, "tensorboard": by_tensorboard, "wandb": by_wandb, "mlflow": by_mlflow}
assert {*READERS, "none"} == {*options("tracker")}
if not importlib.util.find_spec("mlflow"):
    del READERS["mlflow"]


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # of what MLflow uses
def test_after_a_kill_all_trackers_have_the_rows_of_a_run_that_was_left_alone(tmp_path):
    alone = KilledRun(tmp_path / "alone", "tracker=csv")
    assert alone.after("at_once", 1) == [0]
    expected = by_csv(alone.results / "tracking")
    assert len(expected["train/loss"]) == 3

    killed = KilledRun(tmp_path / "killed", f"tracker=[{','.join(READERS)}]")
    checkpoints = str(killed.results / "checkpoints")
    assert killed.after("the_first", checkpoints) == [-SIGKILL, 0]
    for name, read in READERS.items():
        rows = read(killed.results / "tracking")
        for number, steps in expected.items():
            assert rows[number] == pytest.approx(steps, rel=1e-6), (name, number)
