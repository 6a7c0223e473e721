import os
import shutil
from pathlib import Path

import pytest

from dpbench.comparison.dashboard.tables import tables

COMMITTED = Path(__file__).parents[3] / "results/tables"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tables").mkdir()
    for suffix in ("csv", "claims.csv", "md"):
        name = f"misalignment_table5.{suffix}"
        shutil.copy(COMMITTED / name, tmp_path / "tables" / name)
    return tmp_path


def cell(table, row, column):
    (found,) = (c for c in table["cells"] if (c["row"], c["column"]) == (row, column))
    return found


def test_a_table_has_ours_beside_the_published_numbers(folder):
    shown, unreadable = tables(folder)
    table = shown[0]
    assert not unreadable
    assert table["title"] == "Dutch: performance and fairness (Table 5)"
    found = cell(table, "sgd", "acc_a")
    assert (found["published"], found["verdict"], found["n"]) == ("79.9", "reproduced", "20")
    assert found["ours"].startswith("80.32")
    assert sum(table["verdicts"].values()) == len(table["cells"])


def test_a_table_has_the_paper_s_claims_with_their_verdicts(folder):
    table = tables(folder)[0][0]
    found = {claim["statement"]: claim["verdict"] for claim in table["claims"]}
    said = "dpsgd_global_adapt has a smaller loss than dpsgd, on the mean of both groups."
    assert found[said] == "holds within a margin"
    assert len(found) == 20
    (folder / "tables/misalignment_table5.claims.csv").write_text("claim,statement\n")
    assert tables(folder)[0][0]["claims"] == []


def test_published_tables_that_were_not_run_say_so(folder):
    shown, _ = tables(folder)
    names = [table["name"] for table in shown]
    assert names.count("misalignment_table5") == 1
    other = shown[names.index("misalignment_table4")]
    assert set(other["verdicts"]) == {"not run"}
    assert cell(other, "sgd", "acc_a")["ours"] == ""


def test_the_command_of_a_table_is_the_one_at_the_end_of_its_page(folder):
    page = folder / "tables/misalignment_table5.md"
    page.write_text(
        "# A title\n\nMade by `dpbench reproduce misalignment_table5 'table.seeds=[0,1]'`\n"
    )
    found = tables(folder)[0][0]
    assert found["command"] == "dpbench reproduce misalignment_table5 'table.seeds=[0,1]'"
    assert found["title"] == "A title"
    page.unlink()
    without = tables(folder)[0][0]
    assert (without["command"], without["title"]) == (None, "misalignment_table5")


def test_other_files_are_no_tables_and_broken_ones_are_named(folder):
    whole = (folder / "tables/misalignment_table5.csv").read_bytes()
    (folder / "tables/a.csv").write_bytes(whole[:-20])
    (folder / "tables/b.csv").write_bytes(b"\xff\xfe")
    (folder / "tables/points.csv").write_text("x,y\n1,2\n")
    (folder / "tables/empty.csv").write_text("")
    os.mkfifo(folder / "tables/c.csv")
    (folder / "tables/misalignment_table5.claims.csv").unlink()
    os.mkfifo(folder / "tables/misalignment_table5.claims.csv")  # reading it would never end
    shown, unreadable = tables(folder)
    broken = ("a", "b", "c", "misalignment_table5.claims")
    assert {one.source for one in unreadable} == {f"tables/{name}.csv" for name in broken}
    assert [t["name"] for t in shown if "not run" not in t["verdicts"]] == ["misalignment_table5"]
