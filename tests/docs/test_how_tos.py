"""What a how-to adds works: its diffs are applied to a copy of the checkout, and run there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.omissions import extra

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DIFF = re.compile(r"^```diff\n((?:.*\n)*?)```$", re.MULTILINE)
RUN = ("model=logistic", "epochs=1", "batch_size=128")

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git applies the diffs")


def applied(page: str, folder: Path) -> Path:
    """A copy of the checkout with the diffs of a page in it, and what is compiled of the others."""
    for part in ("dpbench", "conf", "benchmarks"):
        shutil.copytree(ROOT / part, folder / part)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return with_diffs(page, folder)


def with_diffs(page: str, folder: Path) -> Path:
    """The folder after the diffs of a page."""
    for diff in DIFF.findall((DOCS / page).read_text()):
        done = subprocess.run(
            ["git", "apply", "--whitespace=error", "-"],
            cwd=folder,
            # A folder inside another repository would be taken for a part of that one.
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
            input=diff,
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return folder


def python(folder: Path, *arguments: object, path: tuple[Path, ...] = ()) -> str:
    """What a Python process prints in the folder, whose dpbench is the first one on the path."""
    imported = os.pathsep.join(map(str, path or [folder]))
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": imported, "DPBENCH_DATA": str(folder / "data")},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pytest_finds(folder: Path, words: str, *files: str) -> None:
    """Runs the tests of these files whose names have the words; each file has some that pass."""
    tests = [f"tests/{file}" for file in files]
    said = python(folder, "-m", "pytest", "-q", "-rp", *tests, "-k", words)
    assert {*re.findall(r"^PASSED (.*?)::", said, re.MULTILINE)} == {*tests}


def options_in(folder: Path) -> set[Path]:
    files = [*(folder / "conf").rglob("*.yaml"), *(folder / "benchmarks").glob("*/table/*.yaml")]
    return {path.relative_to(folder) for path in files}


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("add_*.md")))
def test_the_diffs_of_a_page_apply(page, tmp_path):
    assert options_in(applied(page, tmp_path)) > options_in(ROOT)


@pytest.mark.long
def test_the_added_methods_pass_the_tests_of_all_methods_and_train(tmp_path):
    folder = applied("add_a_method.md", tmp_path)
    methods = "method=dpnsgd,dpsgd_smooth"
    python(folder, "-m", "dpbench", "run", "-m", methods, "results_dir=made", *RUN)
    assert len([*folder.glob("made/runs/*.json")]) == 2
    ours = ("step/methods/test_methods.py", "step/methods/test_statements.py")
    files = (*ours, "step/methods/test_dpsgd_smooth.py")
    pytest_finds(folder, "dpnsgd or dpsgd_smooth", *files)


@pytest.mark.long
def test_a_clip_that_states_too_small_a_sensitivity_does_not_pass(tmp_path):
    folder = applied("add_a_method.md", tmp_path)
    path = folder / "dpbench" / "step" / "methods" / "dpsgd_smooth.py"
    path.write_text(path.read_text().replace("return self.bound /", "return 1.1 * self.bound /"))
    with pytest.raises(AssertionError, match="1 failed"):
        pytest_finds(folder, "dpsgd_smooth and changes_the_sum", "step/methods/test_methods.py")


@pytest.mark.long
def test_the_added_data_set_passes_the_tests_of_all_data_sets_and_is_trained_on(tmp_path):
    folder = applied("add_a_dataset.md", tmp_path)
    files = (
        "learning/data/test_breast_cancer.py",
        "learning/data/test_dataset.py",
        "runs/config/test_config.py",
    )
    pytest_finds(folder, "breast_cancer", *files)


@pytest.mark.long
def test_the_added_table_is_made(tmp_path):
    folder = applied("add_a_table.md", tmp_path)
    pytest_finds(folder, "digits_table1", "runs/config/test_config.py")
    made = python(folder, "-m", "dpbench", "reproduce", "digits_table1", "threads=1")
    verdicts = re.findall(r"^\| (\w+) \| accuracy \|.*\| (\w+) \|$", made, re.MULTILINE)
    assert verdicts == [("sgd", "undecided"), ("dpsgd", "undecided")]
    assert "- 1 claim: 1 holds.\n" in made
    page = (DOCS / "add_a_table.md").read_text()
    rows = re.findall(r"^\| \w+ \| accuracy \|.*\|$", page, re.MULTILINE)
    (gap,) = re.findall(r"`(\+\d.*\(5\))`", page)
    assert len(rows) == 2
    assert all(shown in made for shown in [*rows, gap])


@pytest.mark.slow
def test_the_package_of_the_page_is_a_plug_in_once_it_is_installed(tmp_path):
    pytest.importorskip("hatchling", reason=extra("test"))
    package, site, work = tmp_path / "package", tmp_path / "site", tmp_path / "work"
    package.mkdir()
    work.mkdir()
    with_diffs("plugins.md", package)
    quiet = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    python(package, "-m", "pip", "install", *quiet, "--target", site, ".", path=(ROOT,))
    parts = ["method=dpsgd_soft", "model=net", "epochs=1", "batch_size=512"]
    made = python(work, "-m", "dpbench", "run", *parts, path=(ROOT, site))
    record = json.loads((work / made.strip()).read_text())
    assert record["provenance"]["built"]["method"] == {
        "target": "my_clips.clip.dpsgd_soft",
        "package": "my-clips",
        "version": "0.1.0",
    }
    assert record["provenance"]["metrics"] == {"cost": "my-clips 0.1.0"}
    assert 0 < record["metrics"]["test/cost"] <= 5
