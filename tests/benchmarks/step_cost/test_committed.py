"""The committed pages of times follow from their numbers."""

from pathlib import Path

import pytest
from dpbench.benchmarks.step_cost import report, whole_commands

FOLDER = Path(__file__).parents[3] / "results" / "step_cost"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.csv")), ids=lambda path: path.stem)
def test_a_page_is_what_its_numbers_give(path):
    data = report.read(path)
    module = whole_commands if "command" in data.columns else report
    assert path.with_suffix(".md").read_text(encoding="utf-8") == module.markdown(data)
