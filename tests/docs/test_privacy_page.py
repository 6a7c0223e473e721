"""The pages on privacy name tests that exist, and every method whose guarantee is not a proof."""

import re
from pathlib import Path

from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import options
from dpbench.runs.execution.prepare import build

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "privacy.md").read_text()
FURTHER = "".join(page.read_text() for page in (ROOT / "docs" / "privacy").glob("*.md"))


def test_the_tests_that_are_named_exist():
    there = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", FURTHER)
    assert len(named) > 10
    assert [name for name in named if f"def {name}(" not in there] == []


def test_methods_stand_beside_the_guarantee_that_they_have():
    rows = dict(re.findall(r"^\| (approximate|none) \|.*\| (.+) \|$", PAGE, re.MULTILINE))
    said = {level: set(re.findall(r"`(\w+)`", row)) for level, row in rows.items()}
    levels = {n: build(compose([f"method={n}"])).method.guarantee.level for n in options("method")}
    for level, names in said.items():
        assert names == {name for name, its in levels.items() if its == level}
