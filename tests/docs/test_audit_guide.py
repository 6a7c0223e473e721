"""docs/audit_your_code.md is followed: its files are written, its commands and its workflow run."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.test_pages import DOCS, Fence, agree, fences

PAGE = DOCS / "audit_your_code.md"
ROOT = Path(__file__).parents[2]


def of(language: str) -> list[Fence]:
    return [fence for fence in fences(PAGE) if fence.language == language]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with the files of the page."""
    for fence in of("python"):
        if fence.words:
            (tmp_path / fence.words[0]).write_text(fence.text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dpbench(folder: Path, command: list[str]) -> subprocess.CompletedProcess:
    assert command[0] == "dpbench"
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(0, 1, marks=pytest.mark.long),
        pytest.param(1, 0, marks=pytest.mark.long),
        pytest.param(2, 1, marks=pytest.mark.slow),
    ],
)
def test_the_commands_print_what_the_page_shows(number, code, folder):
    fence = of("sh")[number]
    done = dpbench(folder, fence.commands[0])
    assert done.returncode == code, done.stderr
    assert fence.shown is not None
    assert agree(fence.shown, done.stdout), done.stdout


def test_the_workflow_runs_a_command_of_the_page():
    (fence,) = of("yaml")
    steps = yaml.safe_load(fence.text)["jobs"]["audit"]["steps"]
    commands = [shlex.split(step["run"]) for step in steps if step.get("run", "").startswith("dp")]
    assert commands == of("sh")[1].commands


@pytest.mark.slow
def test_the_python_of_the_page_reports(folder, monkeypatch):
    (fence,) = (fence for fence in of("python") if not fence.words)
    monkeypatch.syspath_prepend(folder)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(fence.text, "<page>", "exec"), {})
    assert out.getvalue().startswith("refuted\n# Audit of my_step:factory")


def test_a_started_program_is_audited(folder):
    """With a program that only moves by noise."""
    (folder / "train.py").write_text(PROGRAM)
    from dpbench.audit.code.audited import AuditedTraining
    from dpbench.audit.code.examples import MadeUp
    from dpbench.audit.code.task import ClaimedDpsgd

    names: dict = {}
    exec((folder / "my_process.py").read_text(), names)
    code = AuditedTraining("my_process", names["factory"], ClaimedDpsgd())
    assert code.sums(MadeUp().usual(1.0), steps=2).shape == (2, 32)


PROGRAM = """
import sys
import numpy as np
folder, *flags = sys.argv[1:]
values = {k.lstrip("-"): float(v) for k, v in (flag.split("=") for flag in flags)}
data = np.load(f"{folder}/data.npz")
noise = np.random.default_rng(int(values["seed"]))
weights = np.zeros(data["inputs"].shape[1])
for step in range(int(values["steps"])):
    weights = weights - values["noise_multiplier"] * noise.normal(size=len(weights))
    np.save(f"{folder}/step{step:05}.npy", weights)
"""


def test_the_checks_of_the_page_are_those_of_the_code():
    from dpbench.audit.code.checks import CHECKS

    text = PAGE.read_text().partition("## What is checked")[2].partition("\n## ")[0]
    named = re.findall(r"^\| ([a-z ]+?) \| (both|step|training) \|", text, re.MULTILINE)
    kinds = {check.name: check.kind or "both" for check in CHECKS}
    assert dict(named) == {"account": "both", **kinds}
