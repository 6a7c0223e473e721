"""The way to a Ray cluster: one on this machine, where Ray is, and a stand-in elsewhere."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from dpbench.runs.config.buildable import check_settings
from dpbench.runs.execution import ray as rays
from dpbench.runs.execution import sweep as sweeps
from dpbench.runs.execution import task
from dpbench.runs.execution.ray import Ray
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load
from dpbench.system.errors import UserError
from tests.plugin_files import BROKEN_NET, write

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["epochs=1", "model=logistic", "batch_size=512", "method=sgd"]


class Cluster(ModuleType):
    """Ray's functions that the launcher calls, on one machine; a task runs when it is waited for,
    the last one first. asked: what the launcher reserved. lost: the number of a task whose machine
    is lost."""

    exceptions = SimpleNamespace(RayError=type("RayError", (Exception,), {}))

    def __init__(self):
        super().__init__("ray")
        self.asked, self.cancelled, self.running, self.lost = {}, [], None, None

    def init(self, address, **settings):
        if address == "nowhere":
            raise ConnectionError("no such host\nand more")
        self.running = True

    def nodes(self):
        resources = {"CPU": 2.0, "GPU": 1.0, "memory": 3.0 * 2**30}
        return [{"Alive": True, "Resources": resources}, {"Alive": False, "Resources": {}}]

    def remote(self, **options):
        self.asked |= options
        return lambda function: SimpleNamespace(remote=lambda *given: Task(function, given))

    def wait(self, tasks, **settings):
        return [tasks[-1]], tasks[:-1]

    def get(self, task):
        if task.given[2] == self.lost:
            raise self.exceptions.RayError("the node died\ntrace")
        return task.function(*task.given)

    def cancel(self, task):
        self.cancelled.append(task.given[2])

    def shutdown(self):
        self.running = False


class Task:
    def __init__(self, function, given):
        self.function, self.given = function, given


@pytest.fixture
def cluster(monkeypatch):
    stand_in = Cluster()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.setattr(task, "PATIENCE", 0)
    return stand_in


@pytest.fixture
def runs(tmp_path):
    return [run_config([*SMALL, f"seed={s}", f"results_dir={tmp_path}/r"]) for s in (0, 1)]


def launcher(**changed):
    settings = {"address": None, "cpus": 2, "gpus": 1, "memory_gb": 3, "retries": 4}
    check_settings(Ray, settings | changed, "launcher.")
    return Ray(**settings | changed)


@pytest.mark.slow
def test_a_task_is_a_process_in_the_folder_of_the_command(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    run = run_config([*SMALL, "results_dir=results"])
    with launcher(gpus=0.5).start(1, run.results / "launched") as attempts:
        ((number, path),) = attempts([run], True)
        assert cluster.running
    assert (number, path) == (0, run.path)
    assert load(tmp_path / path)
    asked = {"num_cpus": 2, "num_gpus": 0.5, "memory": 3 << 30, "max_retries": 4}
    assert (cluster.asked, cluster.running, cluster.cancelled) == (asked, False, [])


def test_a_lost_task_is_a_failure_and_the_others_go_on(cluster, runs, tmp_path, monkeypatch):
    cluster.lost = "1"
    monkeypatch.setattr(rays, "process_in", lambda *about: lambda *place: f"exit code {place[2]}")
    with launcher().start(1, tmp_path / "launched") as attempts:
        found = dict(attempts(runs, True))
    assert "task 1 of the cluster failed (the node died): see" in found[1].reason
    assert "task 0 of the cluster failed (exit code 0): see" in found[0].reason


def test_a_machine_without_the_folders_of_the_command_says_so(tmp_path):
    elsewhere = str(tmp_path / "elsewhere")
    for folders in ((elsewhere, str(tmp_path)), (str(tmp_path), elsewhere)):
        said = rays.process_in(folders[0], {})(folders[1], str(tmp_path / "log"), "0")
        assert said.startswith(f"{elsewhere} is not on ")


def test_a_task_takes_variables_of_the_command(tmp_path, monkeypatch):
    for name, value in (("DPBENCH_DATA", "here"), ("PYTHONPATH", "ours"), ("SECRET", "kept")):
        monkeypatch.setenv(name, value)
    shared = rays.shared_environment()
    assert "SECRET" not in shared
    monkeypatch.delenv("DPBENCH_DATA")
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(rays, "COMMAND", ("-c", "import os; print(os.environ)"))
    assert rays.process_in(".", shared)(".", str(tmp_path / "log"), "0") == "exit code 0"
    said = (tmp_path / "log").read_text()
    assert "'DPBENCH_DATA': 'here'" in said
    assert "'PYTHONPATH': 'ours'" in said


def test_an_interrupted_sweep_cancels_its_open_tasks(cluster, runs, tmp_path, monkeypatch):
    monkeypatch.setattr(rays, "process_in", lambda *about: lambda *given: "exit code 0")
    place = launcher().start(1, tmp_path / "launched")
    next(place.__enter__()(runs, True))
    assert not place.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert cluster.cancelled == ["0"]
    assert not cluster.running


def test_what_cannot_be_is_one_sentence(cluster, monkeypatch):
    with pytest.raises(UserError, match=r"no cluster at nowhere: no such host\. Start one"):
        launcher(address="nowhere").start(1, Path("unused")).__enter__()
    with pytest.raises(UserError, match=r"launcher.retries must be .* at least 0, got -1"):
        launcher(retries=-1)
    with pytest.raises(
        UserError, match=r"launcher.gpus=1.5 must be a share of one GPU, or a whole"
    ):
        launcher(gpus=1.5)
    for more in ({"gpus": 2}, {"memory_gb": 3.5}, {"cpus": 3}):
        with pytest.raises(UserError, match=r"no machine .* lower them to at most 2, 1 and 3\.0\."):
            launcher(**more).start(1, Path("unused")).__enter__()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"needs Ray, .* pip install 'dpbench-suite\[ray\]'"):
        launcher().start(1, Path("unused")).__enter__()


@pytest.mark.long
def test_a_sweep_on_a_ray_of_this_machine_lists_what_failed(plugin, tmp_path, monkeypatch):
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
