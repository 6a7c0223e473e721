"""What docs/clusters.md says works."""

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dpbench.config.overrides import expand
from dpbench.execution import sweep as sweeps
from dpbench.execution.prepare import build
from dpbench.execution.run_config import RunConfig
from dpbench.records.reading import load

PAGE = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
COMMANDS = re.findall(r"^dpbench run -m (.+)$", PAGE, re.MULTILINE)
(PYTHON,) = re.findall(r"^```python\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_are_sweeps(command):
    runs = expand(shlex.split(command))
    assert len(runs) > 1
    for run in runs:
        config = RunConfig.composed(run)
        assert build(config.plain).seed in (0, 1, 2)
        assert config.launcher


@pytest.mark.slow
def test_the_example_without_a_cluster_works(tmp_path):
    pytest.importorskip("submitit", reason="the cluster extra brings it")
    (command,) = [c for c in COMMANDS if "launcher.cluster=local" in c]
    runs = expand([*shlex.split(command), f"results_dir={tmp_path}"])
    heard = []
    assert sweeps.run_and_report(sweeps.plan_sweep("page", runs), heard.append) == ""
    assert sorted(load(path).config["seed"] for path in heard) == [0, 1]


@pytest.mark.slow
def test_the_example_for_ray_works(tmp_path, monkeypatch, capsys):
    """With a stand-in that calls at once: what is ours in the example is right."""
    ray = ModuleType("ray")
    ray.init = lambda: None
    ray.get = list

    def remote(**options):
        assert options.keys() <= {"num_cpus", "max_retries"}
        return lambda function: type("Task", (), {"remote": staticmethod(function)})

    ray.remote = remote
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.chdir(tmp_path)
    exec(compile(PYTHON, "clusters.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(load(tmp_path / line.split()[-1]) for line in lines)
