"""docs/tables_language.md names every key of a table, as the types have them."""

import runpy

import pytest

from tests.docs.test_pages import DOCS

SCRIPT = runpy.run_path(str(DOCS.parent / "scripts" / "table_keys"))
WITHOUT_EXAMPLE = {"columns", "columns.factor", "columns.better", "columns.margin"}
"""Columns are in files of their own, and the registry says these three of all of their metrics."""


@pytest.mark.slow
def test_the_page_is_what_the_script_writes_and_every_key_is_in_a_file_of_ours():
    text = (DOCS / "tables_language.md").read_text()
    assert SCRIPT["generated"](text) == text, "run scripts/table_keys"
    known = {path for path, _, _ in SCRIPT["keys"](SCRIPT["TableFile"])}
    assert known - SCRIPT["examples"]().keys() == WITHOUT_EXAMPLE
