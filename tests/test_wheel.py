"""A wheel built from the repository carries all that a checkout has, and nothing else."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.omissions import extra

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The path of a wheel built without network: hatchling comes with the test extra."""
    pytest.importorskip("hatchling", reason=extra("test"))
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder, ROOT], check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


def files(folder, inside):
    """The paths in a wheel of what git would keep of a folder of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", folder]
    listed = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this copy of the repository has no git history to compare with")
    kept = (name for name in listed.stdout.splitlines() if (ROOT / name).is_file())
    return {f"{inside}/{Path(name).relative_to(folder).as_posix()}" for name in kept}


@pytest.mark.parametrize(
    ("folder", "inside"),
    [("dpbench", "dpbench"), ("conf", "dpbench/conf"), ("benchmarks", "dpbench/benchmarks")],
)
def test_the_wheel_has_every_file_of(folder, inside, names):
    expected = files(folder, inside)
    assert expected
    assert expected <= names


def test_the_wheel_has_the_choices_of_searches_the_licence_and_the_command(names, wheel):
    inside = files("results/search", "dpbench/results/search")
    choices = {name for name in inside if name.endswith(".csv")}
    assert choices
    assert choices == {name for name in names if name.startswith("dpbench/results/search/")}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"dpbench", "dpbench_suite"}
    assert not any("tests" in Path(name).parts or name.endswith(".pyc") for name in names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
    text = zipfile.ZipFile(wheel).read(entry_points).decode()
    assert "dpbench = dpbench.cli.main:main" in text


def test_an_unpacked_wheel_finds_its_own_resources(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "from dpbench.system.paths import *; print(conf_folder()); print(benchmarks_folder())"
    # From a folder elsewhere, with the wheel before the checkout on the path.
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    package = tmp_path.resolve() / "dpbench"
    assert out.split("\n")[:2] == [str(package / "conf"), str(package / "benchmarks")]
    assert list((package / "conf").rglob("*.yaml"))
    assert list((package / "benchmarks").rglob("*.csv"))
