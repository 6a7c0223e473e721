import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from dpbench.comparison.dashboard.tables import pages, tables
from dpbench.comparison.tables.data import TableData, json_file, read_json

COMMITTED = Path(__file__).parents[3] / "results/tables/misalignment_table5.json"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tables").mkdir()
    shutil.copy(COMMITTED, tmp_path / "tables")
    return tmp_path


def shown(folder):
    return tables(pages(folder)[0])


def cell(table, row, column):
    (found,) = (c for c in table.cells if (c.row, c.column) == (row, column))
    return found


def test_a_table_has_ours_beside_the_published_numbers_and_claims(folder):
    found, unreadable = pages(folder)
    assert not unreadable
    table = tables(found)["misalignment_table5"]
    assert table.title == "Dutch: performance and fairness (Table 5)"
    assert table.command == "dpbench reproduce misalignment_table5"
    one = cell(table, "sgd", "acc_a")
    assert (one.published, one.verdict, one.n) == ("79.9", "reproduced", 20)
    assert 80.32 <= one.ours < 80.33
    claims = shown(folder)["misalignment_table5"].claims
    found = {claim.statement: claim.verdict for claim in claims}
    said = "dpsgd_global_adapt has a smaller loss than dpsgd, on the mean of both groups."
    assert found[said] == "holds within a margin"
    assert len(found) == 20


def test_published_tables_that_were_not_run_say_so(folder):
    found = shown(folder)
    assert cell(found["misalignment_table5"], "sgd", "acc_a").n == 20
    other = found["misalignment_table4"]
    assert other.title == "Adult: performance and fairness (Table 4)"
    assert other.command == "dpbench reproduce misalignment_table4"
    assert {one.verdict for one in other.cells} == {"not run"}
    assert cell(other, "sgd", "acc_a").ours is None


def test_a_table_that_was_computed_is_a_page_and_not_one_that_was_not_run(folder):
    assert "calibration_table1" in shown(folder)
    computed = TableData("Computed", "dpbench reproduce calibration_table1")
    (folder / "tables/calibration_table1.json").write_bytes(json_file(computed))
    assert "calibration_table1" not in shown(folder)
    assert pages(folder)[0]["calibration_table1"] == computed


def test_the_data_of_a_table_is_read_as_it_was_written(tmp_path):
    table, path = read_json(COMMITTED, TableData), tmp_path / "again.json"
    path.write_bytes(json_file(table))
    assert path.read_bytes() == COMMITTED.read_bytes()
    path.write_bytes(json_file(replace(table, cells=table.cells[:-1])))
    assert read_json(path, TableData) != table


def test_broken_files_are_named_and_what_is_no_page_is_not_read(folder):
    (folder / "tables/a.json").write_bytes(COMMITTED.read_bytes()[:-20])
    (folder / "tables/b.json").write_bytes(b"\xff\xfe")
    os.mkfifo(folder / "tables/c.json")  # reading it would never end
    (folder / "tables/d.json").write_bytes(b"[" * 100_000)
    (folder / "tables/points.csv").write_text("x,y\n1,2\n")
    (folder / "other.json").write_text("{}")
    found, unreadable = pages(folder)
    assert [one.source for one in unreadable] == [f"tables/{name}.json" for name in "abcd"]
    assert found.keys() == {"misalignment_table5"}
