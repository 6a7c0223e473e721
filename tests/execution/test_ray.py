"""The way to a Ray cluster: one on this machine, where Ray is, and a stand-in elsewhere."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from dpbench.config.buildable import check_settings
from dpbench.execution import sweep as sweeps
from dpbench.execution.launcher import Failure
from dpbench.execution.ray import Ray
from dpbench.execution.run_config import RunConfig
from dpbench.records.reading import load
from dpbench.system.errors import UserError
from tests.plugin_files import BROKEN_NET, write

ROOT = Path(__file__).resolve().parents[2]
RUNS = [RunConfig((f"seed={seed}",), {}) for seed in (0, 1, 2)]


class Cluster(ModuleType):
    """Ray's functions that the launcher calls; each task ends when it is waited for, the last one
    first. asked: what the launcher said."""

    exceptions = SimpleNamespace(RayError=type("RayError", (Exception,), {}))

    def __init__(self):
        super().__init__("ray")
        self.asked, self.cancelled, self.running = {}, [], None

    def init(self, address, **settings):
        if address == "nowhere":
            raise ConnectionError("no such host\nand more")
        self.running = True

    def remote(self, **options):
        self.asked |= options
        return lambda function: SimpleNamespace(remote=lambda *given: Task(function, given))

    def wait(self, tasks, **settings):
        return [tasks[-1]], tasks[:-1]

    def get(self, task):
        return task.function(*task.given)

    def cancel(self, task):
        self.cancelled.append(task.given[0])

    def shutdown(self):
        self.running = False


class Task:
    def __init__(self, function, given):
        self.function, self.given = function, given


@pytest.fixture
def cluster(monkeypatch):
    stand_in = Cluster()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    return stand_in


def launcher(**changed):
    settings = {"address": None, "cpus": 2, "gpus": 1, "memory_gb": 3, "retries": 4}
    check_settings(Ray, settings | changed, "launcher.")
    return Ray(**settings | changed)


def test_a_task_reserves_what_the_settings_say_and_answers_for_its_own_run(cluster, monkeypatch):
    monkeypatch.setattr("dpbench.execution.ray.attempt", lambda run, wait: Path(run.overrides[0]))
    with launcher().start(1, Path("unused")) as attempts:
        found = list(attempts(RUNS, True))
        assert cluster.running
    assert found == [(number, Path(f"seed={number}")) for number in (2, 1, 0)]
    assert cluster.asked == {"num_cpus": 2, "num_gpus": 1, "memory": 3 << 30, "max_retries": 4}
    assert (cluster.running, cluster.cancelled) == (False, [])


def test_a_task_that_is_lost_is_a_failure_and_the_others_go_on(cluster, monkeypatch):
    def attempt(run, wait):
        if run is RUNS[1]:
            raise cluster.exceptions.RayError("the node died\ntrace")
        return Path("record")

    monkeypatch.setattr("dpbench.execution.ray.attempt", attempt)
    with launcher().start(1, Path("unused")) as attempts:
        found = dict(attempts(RUNS, True))
    assert found[0] == found[2] == Path("record")
    assert found[1] == Failure("its task failed: the node died.", "the node died\ntrace")


def test_an_interrupted_sweep_cancels_the_tasks_that_have_not_ended(cluster, monkeypatch):
    monkeypatch.setattr("dpbench.execution.ray.attempt", lambda run, wait: Path("record"))
    place = launcher().start(1, Path("unused"))
    ended = place.__enter__()(RUNS, True)
    next(ended)
    assert not place.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert cluster.cancelled == RUNS[:2]
    assert not cluster.running


def test_what_cannot_be_is_one_sentence(cluster, monkeypatch):
    with pytest.raises(UserError, match=r"no cluster at nowhere: no such host\. Start one"):
        launcher(address="nowhere").start(1, Path("unused")).__enter__()
    with pytest.raises(UserError, match=r"launcher.retries must be .* at least 0, got -1"):
        launcher(retries=-1)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"needs Ray, .* pip install 'dpbench-suite\[ray\]'"):
        launcher().start(1, Path("unused")).__enter__()


@pytest.mark.long
def test_a_sweep_on_a_ray_of_this_machine_makes_its_records_and_lists_what_failed(
    plugin, tmp_path, monkeypatch
):
    pytest.importorskip("ray", reason="the ray extra brings it")
    write(plugin, {"clipworks/net.py": BROKEN_NET})
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{plugin}")
    fixed = ["epochs=1", "model=logistic", "batch_size=512", "method=sgd", "launcher=ray"]
    fixed += ["launcher.memory_gb=0.1", f"results_dir={tmp_path / 'results'}"]
    fails = [*fixed, "seed=2", "model=net"]
    heard = []
    sweep = sweeps.plan_sweep("some", [[*fixed, "seed=0"], [*fixed, "seed=1"], fails])
    said = sweeps.run_and_report(sweep, heard.append)
    assert sorted(load(path).config["seed"] for path in heard) == [0, 1]
    assert "1 of 3 runs failed" in said
    assert "seed=2 model=net: RuntimeError: out of layers" in said
