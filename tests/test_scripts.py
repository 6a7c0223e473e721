"""The set-up: scripts that run, and pins that agree with the ranges."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = [
    *(f"scripts/{name}" for name in ("browser", "javascript", "environment", "demo", "test")),
    ".ci/run",
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    Requirement(line)
    for line in (
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    )
]


@pytest.mark.parametrize(
    "name",
    ["cards", "planted_faults", "recipe_gaps", "report_pictures", "report_scale", "table_keys"],
)
def test_a_script_finds_all_that_it_imports(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    runpy.run_path(str(ROOT / "scripts" / name), run_name="imported")


@pytest.fixture(scope="module")
def pins():
    """Canonical name -> exact version."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    versions = {}
    for pin in found:
        (specifier,) = pin.specifier
        assert specifier.operator == "==", f"{pin} is no exact pin"
        assert "*" not in specifier.version, f"{pin} is no exact pin"
        assert not pin.url, f"{pin} names an address"
        versions[canonicalize_name(pin.name)] = specifier.version
    assert len(versions) == len(found), "a package is pinned twice"
    return versions


def environment(folder, **variables):
    """Run a copy of scripts/environment that lies in folder, with no Python on its path."""
    (folder / "scripts").mkdir(exist_ok=True)
    shutil.copy(ROOT / "scripts/environment", folder / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for tool in ("bash", "cksum", "dirname", "rm"):
        link = tools / tool
        if not link.exists():
            link.symlink_to(shutil.which(tool))
    return subprocess.run(
        [shutil.which("bash"), folder / "scripts/environment"],
        env={"PATH": str(tools), **variables},
        check=False,
        capture_output=True,
        text=True,
    )


def stand_in(path, body):
    """A shell script at path in the place of a Python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
    path.chmod(0o755)
    return str(path)


# Answers the version question with 3.12; as venv, makes a .venv whose pip notes its arguments.
PYTHON_312 = """
case "$*" in
*version_info*) echo 3.12 ;;
*"-m venv"*) "{python}" -c '
import pathlib, shutil
shutil.rmtree(".venv", ignore_errors=True)
pathlib.Path(".venv/bin").mkdir(parents=True)
shutil.copy("venv-python", ".venv/bin/python")' && echo made >>calls ;;
esac
"""
VENV_PYTHON = """
case "$*" in
*version_info*) echo 3.12 ;;
*"install"*) echo "installed $*" >>calls; exit "${PIP_EXIT:-0}" ;;
esac
"""


@pytest.fixture
def python(tmp_path):
    stand_in(tmp_path / "venv-python", VENV_PYTHON)
    body = PYTHON_312.replace("{python}", sys.executable)
    return stand_in(tmp_path / "bin/python3.12", body)


def calls(folder):
    """The first words of what was done since the last question."""
    file = folder / "calls"
    done = [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []
    file.unlink(missing_ok=True)
    return done


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_executable_and_parses(script):
    assert os.access(ROOT / script, os.X_OK)
    check = subprocess.run(["bash", "-n", ROOT / script], capture_output=True, text=True)
    assert (check.returncode, check.stderr) == (0, "")


def test_an_environment_is_made_once(tmp_path, python):
    first = environment(tmp_path, PYTHON=python)
    assert first.returncode == 0, first.stderr
    assert len(first.stdout.splitlines()) == 1
    assert calls(tmp_path) == ["made", "installed"]

    second = environment(tmp_path, PYTHON=python)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert calls(tmp_path) == []


@pytest.mark.slow
def test_an_interrupted_installation_starts_afresh(tmp_path, python):
    broken = environment(tmp_path, PYTHON=python, PIP_EXIT="1")
    assert broken.returncode == 1
    assert "did not finish" in broken.stderr
    calls(tmp_path)
    assert environment(tmp_path, PYTHON=python).returncode == 0
    assert calls(tmp_path) == ["made", "installed"]


def test_another_constraints_file_brings_the_environment_up_to_date(tmp_path, python):
    environment(tmp_path, PYTHON=python)
    calls(tmp_path)
    stamp = tmp_path / ".venv/dpbench-stamp"
    stamp.write_text(stamp.read_text().rstrip() + "1\n")
    assert environment(tmp_path, PYTHON=python).returncode == 0
    assert calls(tmp_path) == ["installed"]


@pytest.mark.slow
def test_a_moved_environment_is_made_again(tmp_path, python):
    environment(tmp_path, PYTHON=python)
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    calls(moved)
    assert environment(moved, PYTHON=str(moved / "bin/python3.12")).returncode == 0
    assert calls(moved) == ["made", "installed"]


def test_a_python_that_is_missing_or_does_not_suit_is_one_sentence(tmp_path):
    run = environment(tmp_path)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert "no Python from 3.11 to 3.13" in run.stderr
    run = environment(tmp_path, PYTHON=stand_in(tmp_path / "old", "echo"))
    assert run.returncode == 1
    assert f"PYTHON={tmp_path / 'old'} is not a Python from 3.11 to 3.13" in run.stderr
    body = 'case "$*" in *version_info*) echo 3.12 ;; *) exit 1 ;; esac'
    run = environment(tmp_path, PYTHON=stand_in(tmp_path / "bare", body))
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert "python3.12-venv" in run.stderr


def browser(folder):
    """Run scripts/browser with nothing on its path but what folder holds."""
    return subprocess.run(
        [shutil.which("bash"), ROOT / "scripts/browser"],
        env={"PATH": str(folder)},
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_browser_that_is_there_is_enough(tmp_path):
    stand_in(tmp_path / "chromium", "exit 1")
    stand_in(tmp_path / "apt-get", f"echo called >>{tmp_path}/calls")
    run = browser(tmp_path)
    assert (run.returncode, run.stdout, run.stderr, calls(tmp_path)) == (0, "", "", [])


def test_no_browser_is_one_sentence_and_no_failure(tmp_path):
    stand_in(tmp_path / "apt-get", "exit 1")
    run = browser(tmp_path)
    assert run.returncode == 0
    assert run.stderr.count("\n") == 1
    assert "no Chromium here" in run.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs a browser")
def test_a_browser_is_installed_after_an_update_where_it_takes_one(tmp_path):
    stand_in(
        tmp_path / "apt-get",
        f"""
echo "$1" >>{tmp_path}/calls
[[ $1 == update ]] && : >{tmp_path}/updated && exit 0
[[ -f {tmp_path}/updated ]] || exit 100
printf '#!/bin/sh' >{tmp_path}/chromium && {shutil.which("chmod")} +x {tmp_path}/chromium""",
    )
    run = browser(tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    assert calls(tmp_path) == ["install", "update", "install"]


@pytest.fixture
def javascript(tmp_path):
    """javascript(**tools): run a copy of scripts/javascript that finds only these tools."""

    def run(**bodies):
        (tmp_path / "scripts").mkdir()
        (tmp_path / ".venv").mkdir()
        shutil.copy(ROOT / "scripts/javascript", tmp_path / "scripts")
        shutil.copy(ROOT / "biome.jsonc", tmp_path)
        for name in ("dirname", "sed"):
            stand_in(tmp_path / "bin" / name, f'exec {shutil.which(name)} "$@"')
        for name, body in bodies.items():
            stand_in(tmp_path / "bin" / name, body)
        command = [shutil.which("bash"), tmp_path / "scripts/javascript"]
        path = {"PATH": str(tmp_path / "bin")}
        return subprocess.run(command, env=path, check=False, capture_output=True, text=True)

    return run


def biome_version():
    return re.search(r"/schemas/([\d.]+)/", (ROOT / "biome.jsonc").read_text())[1]


def test_a_linter_that_is_there_is_enough(javascript, tmp_path):
    npm = f"echo called >>{tmp_path}/calls"
    run = javascript(biome=f"echo Version: {biome_version()}", npm=npm)
    assert (run.returncode, run.stdout, run.stderr, calls(tmp_path)) == (0, "", "", [])


def test_a_linter_of_another_version_is_not(javascript, tmp_path):
    run = javascript(biome="echo Version: 1.0.0", npm=f'echo "$@" >{tmp_path}/arguments')
    assert (run.returncode, run.stderr, len(run.stdout.splitlines())) == (0, "", 1)
    assert f"@biomejs/biome@{biome_version()}" in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize("tools", [{}, {"npm": "echo no network >&2; exit 1"}])
def test_no_linter_is_one_sentence_and_no_failure(javascript, tools):
    run = javascript(**tools)
    assert (run.returncode, run.stderr.count("\n")) == (0, 1)
    assert "no biome" in run.stderr


@pytest.mark.parametrize("failing", [None, "ruff", "mypy", "pytest"])
def test_every_check_is_made_and_any_that_fails_is_a_failure(tmp_path, failing):
    for name in ("environment", "browser", "javascript"):
        stand_in(tmp_path / "scripts" / name, "exit 0")
    shutil.copy(ROOT / "scripts/test", tmp_path / "scripts")
    for tool in ("ruff", "mypy", "pytest"):
        body = f"echo skipped 2 tests >${{SKIPPED:-/dev/null}}; echo said by {tool}"
        stand_in(tmp_path / ".venv/bin" / tool, f"{body}; exit {int(tool == failing)}")
    run = subprocess.run([tmp_path / "scripts/test"], check=False, capture_output=True, text=True)
    assert run.returncode == (1 if failing else 0)
    assert run.stdout.count("said by ") == 4
    end = re.search(r"^skipped 2 tests\n(failed: .*\n)*\Z", run.stdout, re.MULTILINE)
    assert bool(end[1]) == bool(failing)


def test_dependencies_and_the_build_tool_are_pinned_within_their_ranges(pins):
    for requirement in REQUIREMENTS:
        version = pins.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} has no pin in constraints.txt"
        assert requirement.specifier.contains(version), requirement.name
        bounds = [bound.operator for bound in requirement.specifier]
        assert ">=" in bounds, f"{requirement.name} has no lower bound"
    assert "hatchling" in pins
    assert PROJECT["name"] == "dpbench-suite"


@pytest.mark.parametrize("version", ["3.11.0", "3.12.1", "3.13.5"])
def test_python_is_allowed(version):
    assert version in SpecifierSet(PROJECT["requires-python"])


@pytest.mark.parametrize("version", ["3.10.14", "3.14.0"])
def test_python_is_not_allowed(version):
    assert version not in SpecifierSet(PROJECT["requires-python"])


@pytest.mark.parametrize("version", ["2.11.0", "2.12.0", "2.13.1", "2.14.1"])
def test_torch_is_allowed(version):
    (torch,) = (requirement for requirement in REQUIREMENTS if requirement.name == "torch")
    assert version in torch.specifier
