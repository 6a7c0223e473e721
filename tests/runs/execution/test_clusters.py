"""What docs/clusters.md says works."""

import re
import shlex
from pathlib import Path

import pytest

from dpbench.runs.config.overrides import expand
from dpbench.runs.execution import sweep as sweeps
from dpbench.runs.execution.prepare import build
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.records.reading import load

PAGE = (Path(__file__).parents[3] / "docs" / "clusters.md").read_text()
COMMANDS = re.findall(r"^dpbench run -m (.+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_are_sweeps(command):
    runs = expand(shlex.split(command))
    assert len(runs) > 1
    for run in runs:
        config = RunConfig.composed(run)
        assert build(config.plain).seed in (0, 1, 2)
        assert config.launcher


@pytest.mark.long
def test_the_example_without_a_cluster_works(tmp_path):
    (command,) = [c for c in COMMANDS if "launcher.cluster=local" in c]
    runs = expand([*shlex.split(command), f"results_dir={tmp_path}"])
    heard = []
    assert sweeps.run_and_report(sweeps.plan_sweep("page", runs), heard.append) == ""
    assert sorted(load(path).config["seed"] for path in heard) == [0, 1]
