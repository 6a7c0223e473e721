"""What MLflow is told: with a stand-in for its client, and with the real one where it is."""

import importlib.util
import json
import math
import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest

from dpbench.runs.records.trackers.mlflow import MlflowTracker
from dpbench.runs.records.trackers.tracker import RunInfo
from tests.omissions import extra

TRACKER = MlflowTracker("dpbench")


class Client:
    """MLflow's client in memory, with the signatures of what the tracker calls."""

    stores: ClassVar[dict[str, dict]] = {}

    def __init__(self, tracking_uri):
        self.runs = self.stores.setdefault(tracking_uri, {})

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id=name) if self.runs else None

    def create_experiment(self, name, artifact_location=None):
        return name

    def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
        run_id = f"{experiment_id}-{len(self.runs)}"
        self.runs[run_id] = {"name": run_name, "tags": dict(tags or {}), "rows": [], "files": {},
                             "parameters": {}, "ended": False}  # fmt: skip
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def search_runs(self, experiment_ids, filter_string=""):
        _, digest, _ = filter_string.split("'")
        ids = [i for i, run in self.runs.items() if run["tags"].get("digest") == digest]
        return [SimpleNamespace(info=SimpleNamespace(run_id=run_id)) for run_id in ids]

    def delete_run(self, run_id):
        del self.runs[run_id]

    def log_metric(self, run_id, key, value, timestamp=None, step=None):
        assert not self.runs[run_id]["ended"]
        self.runs[run_id]["rows"].append((step, key, value))

    def log_param(self, run_id, key, value):
        self.runs[run_id]["parameters"][key] = value

    def log_text(self, run_id, text, artifact_file):
        self.runs[run_id]["files"][artifact_file] = text

    def set_tag(self, run_id, key, value):
        self.runs[run_id]["tags"][key] = value

    def set_terminated(self, run_id):
        self.runs[run_id]["ended"] = True


@pytest.fixture
def stored(monkeypatch):
    """The runs that the stand-in has, by their ids."""
    module = ModuleType("mlflow")
    module.MlflowClient = Client
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setattr(Client, "stores", {})
    return lambda: [run for store in Client.stores.values() for run in store.values()]


def test_a_run_that_goes_on_is_one_run_with_each_step_once(stored, interrupted, tmp_path):
    interrupted(TRACKER)
    (run,) = stored()
    losses = [(step, value) for step, key, value in run["rows"] if key == "train/loss"]
    assert [step for step, _ in losses] == [10, 20, 30]
    assert math.isnan(losses[0][1])
    assert (0, "step/bias", 0.25) in run["rows"]
    assert (30, "test/accuracy", 0.5) in run["rows"]
    assert run["ended"]
    assert json.loads(run["files"]["config.json"]) == {"epochs": 3}
    assert json.loads(run["files"]["privacy.json"])["rdp"] == 2.0
    assert (run["tags"]["digest"], run["tags"]["status"]) == ("abc", "complete")
    assert [*Client.stores] == [f"sqlite:///{tmp_path}/mlflow/mlflow.db"]


def test_a_server_and_names_with_any_characters(stored, tmp_path):
    info = RunInfo("abc", "a run", "g", ("x",), {"method": {"bound": 1.0}}, tmp_path)
    log = MlflowTracker("mine", "http://localhost:5000").start(info)
    log.log(1, {"test/accuracy/<5 é": 0.5, "test/accuracy/>5 é": 0.25})
    (run,) = stored()
    names = ["test/accuracy/_3c_5 _e9_", "test/accuracy/_3e_5 _e9_"]
    assert run["rows"] == [(1, names[0], 0.5), (1, names[1], 0.25)]
    assert run["parameters"] == {"method": "{'bound': 1.0}"}
    assert [*Client.stores] == ["http://localhost:5000"]


def test_a_table_is_kept_as_files(stored, tmp_path):
    TRACKER.table("demo", {"md": b"# Demo", "png": b"\x89"}, tmp_path)
    (run,) = stored()
    assert (run["name"], run["files"], run["ended"]) == ("demo", {"demo.md": "# Demo"}, True)


@pytest.mark.filterwarnings("default")  # of what MLflow uses
@pytest.mark.skipif(not importlib.util.find_spec("mlflow"), reason=extra("mlflow"))
def test_mlflow_itself_takes_what_it_is_told(interrupted, tmp_path):
    from mlflow import MlflowClient

    interrupted(TRACKER)
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("dpbench").experiment_id])
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert [metric.step for metric in losses] == [10, 20, 30]
    assert run.data.metrics["test/accuracy"] == 0.5
    assert list(tmp_path.glob("mlflow/artifacts/*/artifacts/privacy.json"))
