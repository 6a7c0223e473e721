"""The page's JavaScript: formatted, and linted as the one script that it is put together to."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.comparison.dashboard.command import SCRIPTS, script

ROOT = Path(__file__).resolve().parents[3]
ASSETS = ROOT / "dpbench/comparison/dashboard/assets"
VERSION = re.search(r"/schemas/([\d.]+)/", (ROOT / "biome.jsonc").read_text())[1]


@pytest.fixture(scope="module")
def biome():
    """biome(*arguments): its exit status and what it prints; skips without the pinned version."""
    places = (shutil.which("biome"), Path(sys.prefix) / "javascript/node_modules/.bin/biome")
    found = next((path for path in places if path and version_of(path) == VERSION), None)
    if found is None:
        pytest.skip(f"no biome {VERSION} here; scripts/javascript installs it where npm is")

    def call(verb, *paths):
        command = [found, verb, f"--config-path={ROOT}", "--error-on-warnings", *paths]
        run = subprocess.run(command, check=False, capture_output=True, text=True)
        return run.returncode, run.stdout + run.stderr

    return call


def version_of(path):
    try:
        run = subprocess.run([path, "--version"], check=False, capture_output=True, text=True)
    except OSError:
        return None
    return run.stdout.removeprefix("Version: ").strip()


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_line_and_no_file_is_too_long(name):
    lines = (ASSETS / name).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 100] == []
    assert len(lines) <= 250


def test_every_file_is_in_the_page():
    assert {path.name for path in ASSETS.glob("*.js")} == set(SCRIPTS)


@pytest.mark.slow
def test_files_are_formatted(biome):
    status, said = biome("format", *(ASSETS / name for name in SCRIPTS))
    assert status == 0, said


@pytest.mark.slow
def test_the_script_passes_the_linter(biome, tmp_path):
    (tmp_path / "page.js").write_text(script(), encoding="utf-8")
    status, said = biome("lint", tmp_path / "page.js")
    assert status == 0, said


def test_the_linter_finds_a_name_that_no_file_declares(biome, tmp_path):
    text = re.sub(r"\bconst empty\b", "const missing", script())
    (tmp_path / "page.js").write_text(text, encoding="utf-8")
    status, said = biome("lint", tmp_path / "page.js")
    assert status != 0
    assert "The empty variable is undeclared" in said


def test_the_linter_finds_a_function_of_more_than_forty_lines(biome, tmp_path):
    lines = "".join(f"  console.log({i});\n" for i in range(41))
    (tmp_path / "page.js").write_text(f"function long() {{\n{lines}}}\nlong();\n")
    status, said = biome("lint", tmp_path / "page.js")
    assert status != 0
    assert "noExcessiveLinesPerFunction" in said
