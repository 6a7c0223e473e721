"""The committed pages of times follow from their numbers."""

from pathlib import Path

import pytest
from dpbench.benchmarks.step_cost import counted, report, whole_commands

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "results" / "step_cost"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.csv")), ids=lambda path: path.stem)
def test_a_page_is_what_its_numbers_give(path):
    data = report.read(path)
    by_column = {"command": whole_commands, "operation": counted}
    module = next((by for column, by in by_column.items() if column in data), report)
    assert path.with_suffix(".md").read_text(encoding="utf-8") == module.markdown(data)


def test_the_page_shows_the_counts_as_they_are_printed():
    printed = (FOLDER / "step_counted.md").read_text(encoding="utf-8")
    table = printed[printed.index("| step |") :]
    assert table in (ROOT / "benchmarks" / "step_cost" / "README.md").read_text(encoding="utf-8")
