import gc

import pytest

from dpbench.comparison.dashboard.command import report
from dpbench.runs.records.collect import collect, readable
from dpbench.runs.records.reading import Unreadable
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError


def sorted_out(folder):
    """What was found, and what could not be read."""
    read = list(collect(folder))
    return [one for one in read if isinstance(one, Record)], [
        one for one in read if isinstance(one, Unreadable)
    ]


def test_each_run_is_taken_once_and_the_rest_is_named(spoiled, record_of):
    found, unreadable = sorted_out(spoiled)
    assert [one.digest for one in found] == [record_of().digest]
    assert found[0].source == f"runs/{record_of().digest}.json"
    assert {one.source for one in unreadable} == {
        *(f"runs/{name}.json" for name in ("truncated", "older", "empty", "list", "bytes")),
        "tables/t.records.jsonl, line 2",
    }


def test_tables_count_where_runs_lack_records_and_folders_are_named(folder_of, record_of):
    folder = folder_of([record_of(seed=0)])
    (folder / "tables").mkdir()
    lines = "".join(record_of(seed=s).json() + "\n" for s in (0, 1))
    (folder / "tables/x.records.jsonl").write_text(lines)
    sources = {f.config["seed"]: f.source for f in sorted_out(folder)[0]}
    assert sources[0].startswith("runs/")
    assert sources[1] == "tables/x.records.jsonl, line 2"
    folder = folder_of([record_of()])
    (folder / "runs/x.json").mkdir()
    assert [one.source for one in sorted_out(folder)[1]] == ["runs/x.json"]


@pytest.mark.parametrize("what", ["no folder", "empty", "only broken"])
def test_no_record_is_one_sentence_with_the_way_out(tmp_path, what):
    folder = tmp_path / "nowhere" if what == "no folder" else tmp_path
    if what == "only broken":
        (folder / "runs").mkdir()
        (folder / "runs/a.json").write_text("{")
    with pytest.raises(UserError, match="results_dir") as raised:
        report([f"results_dir={folder}", f"out={tmp_path / 'page.html'}"])
    assert str(folder) in str(raised.value)
    assert ("runs/a.json" in str(raised.value)) == (what == "only broken")


@pytest.mark.parametrize("enabled", [True, False])
def test_reading_leaves_the_collection_of_garbage_as_it_was(tmp_path, record_of, enabled):
    record_of().save(tmp_path)
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        readable(tmp_path)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
