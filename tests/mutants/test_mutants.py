"""Faults put into the private core, one at a time, each of which the tests must find.

The mutants are in mutants.yaml. A mutant is put into a copy of the library, and the tests that it
names are run on that copy; all of them take some twenty minutes: `pytest -m long tests/mutants`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MUTANTS = yaml.safe_load((Path(__file__).parent / "mutants.yaml").read_text(encoding="utf-8"))
COPIED = ("dpbench", "conf", "benchmarks", "tests", "docs", "pyproject.toml")

FAILED = 1
"""The exit code of pytest if a test failed; others mean that none was run to its end."""


@pytest.fixture(params=MUTANTS, ids=lambda mutant: mutant["name"])
def mutant(request):
    return request.param


def test_each_stands_for_a_text_that_its_file_has_once(mutant):
    text = (ROOT / "dpbench" / mutant["file"]).read_text(encoding="utf-8")
    assert text.count(mutant["replace"]) == 1
    assert all((ROOT / path).exists() for path in mutant["tests"])


@pytest.mark.long
def test_the_tests_find_it(mutant, tmp_path):
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    path = tmp_path / "dpbench" / mutant["file"]
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutant["replace"], mutant["with"]), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, "-m", "not long", *mutant["tests"]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == FAILED, found.stdout[-2000:]
