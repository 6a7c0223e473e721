"""`--config-dir DIR` on every command that takes options."""

import json
import re
import shlex

import pytest

from dpbench.runs.config.search_path import file_of
from tests.plugin_files import SHARP, write

LR = "optimizer.lr=0.1,0.2"


@pytest.mark.slow
def test_every_command_with_options_takes_the_flag(command, tmp_path):
    folder = write(tmp_path / "added", {"method/sharp.yaml": SHARP})
    flag, where = ["--config-dir", folder], f"results_dir={tmp_path}"
    assert "method=sharp" in command("list", "method", *flag).out
    small = ["epochs=1", "model=logistic", "batch_size=512", where]
    assert json.loads(command("epsilon", "method=sharp", *small, *flag).out[-1])["steps"] == 3
    assert len(command("run", "-m", "method=sharp,sgd", *small, *flag).out) == 2
    table = ["table.methods=[sharp]", "table.seeds=[0]", "table.claims={}"]
    assert "| sharp |" in "\n".join(command("reproduce", *flag, "demo", *small, *table).out)
    found = command("search", "N=1", "method=sharp", "optimizer.lr=0.1,0.2", *small, *flag)
    assert "method=sharp" in "\n".join(found.out)
    refused = command("report", *flag)
    assert (refused.code, refused.err) == (2, ["dpbench: report takes no --config-dir."])


def test_a_tracker_of_ones_own_that_is_not_nested_is_told_how(command, tmp_path):
    bare = "_target_: dpbench.records.trackers.csv.CsvTracker\n"
    folder = write(tmp_path / "mine", {"tracker/bare.yaml": bare})
    done = command("run", "tracker=bare", "--config-dir", folder)
    assert done.code == 2
    assert "nest the settings under NAME:, as conf/tracker/csv.yaml does" in done.err[-1]


@pytest.mark.slow
def test_a_user_s_table_is_verified_with_its_folder(command, tmp_path):
    demo = file_of("table", "demo").read_text()
    folder = write(tmp_path / "mine", {"table/my.yaml": demo})
    flag, where = ["--config-dir", folder], f"results_dir={tmp_path}"
    small = ["epochs=1", "model=logistic", "table.methods=[sgd]", "table.seeds=[0]"]
    command("reproduce", "my", *small, "table.claims={}", where, *flag)
    (page,) = (tmp_path / "tables").glob("my*.md")
    (made_by,) = (line for line in page.read_text().splitlines() if line.startswith("Made by"))
    assert made_by.endswith("--config-dir=mine`")
    (unknown,) = (line for line in command("verify", where).out if "cannot be verified" in line)
    assert unknown.endswith("name the folder that has table/my.yaml with --config-dir.")
    for names in ([], ["my"]):
        done = command("verify", *names, where, *flag)
        assert done.out[-1].startswith("verified 1 record and 1 table,")
        assert not [line for line in done.out if line.startswith("my")]


def test_the_checklist_of_a_user_s_table_is_found_with_its_folder(command, tmp_path):
    demo = file_of("table", "demo").read_text()
    flag = ["--config-dir", write(tmp_path / "mine", {"table/my.yaml": demo})]
    refused = command("checklist", "my", f"results_dir={tmp_path}", *flag)
    way = "`dpbench reproduce my --config-dir=mine`"
    assert f"my.records.jsonl has no readable record: {way}" in refused.err[-1]


@pytest.mark.slow
def test_the_commands_on_pages_find_the_folder_from_where_they_were_made(
    command, tmp_path, monkeypatch
):
    demo = file_of("table", "demo").read_text()
    write(tmp_path / "mine", {"table/my.yaml": demo, "method/sharp.yaml": SHARP})
    monkeypatch.chdir(tmp_path)
    flag, where = ["--config-dir", "mine"], f"results_dir={tmp_path}"
    small = ["epochs=1", "model=logistic"]
    command("reproduce", "my", *small, "table.methods=[sgd]", "table.claims={}", where, *flag)
    (page,) = (tmp_path / "tables").glob("my*.md")
    (made_by,) = re.findall("Made by `dpbench (.*)`", page.read_text())
    before = page.read_bytes()
    assert command(*shlex.split(made_by), where).code == 0
    assert page.read_bytes() == before
    page = "\n".join(command("search", "N=1", "method=sharp", "extend=0", *small, LR, *flag).out)
    assert str(tmp_path) not in page
    (chosen,) = re.findall("^ *dpbench (run .*)$", page, re.MULTILINE)
    assert command(*shlex.split(chosen), where).code == 0
