"""A results folder of made-up records, and the table of it."""

import pytest

from dpbench.comparison.tables.sweep.command import table
from tests.comparison.tables.sweep.made_up import swept


@pytest.fixture
def results(tmp_path):
    for made in swept():
        made.save(tmp_path)
    return tmp_path


@pytest.fixture
def made(results):
    """made(*arguments): the files of the table by suffix."""

    def write(*arguments):
        printed = table([str(results), f"out={results / 't'}", *arguments])
        files = {s: (results / f"t.{s}").read_text() for s in ("md", "csv", "tex")}
        assert printed == files["md"]
        return files

    return write
