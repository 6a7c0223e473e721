import pytest

from dpbench.errors import UserError
from dpbench.report.collect import collect


def test_each_run_is_taken_once_and_the_rest_is_named(spoiled, record_of):
    collected = collect(spoiled)
    assert [found.record.digest for found in collected.found] == [record_of().digest]
    assert collected.found[0].source == f"runs/{record_of().digest}.json"
    assert {one.source for one in collected.unreadable} == {
        *(f"runs/{name}.json" for name in ("truncated", "older", "empty", "list", "bytes")),
        "tables/t.records.jsonl, line 2",
    }


def test_records_of_tables_count_where_runs_lack_them(folder_of, record_of):
    folder = folder_of([record_of(seed=0)])
    (folder / "tables").mkdir()
    lines = "".join(record_of(seed=s).json() + "\n" for s in (0, 1))
    (folder / "tables/x.records.jsonl").write_text(lines)
    sources = {f.record.config["seed"]: f.source for f in collect(folder).found}
    assert sources[0].startswith("runs/")
    assert sources[1] == "tables/x.records.jsonl, line 2"


@pytest.mark.parametrize("what", ["no folder", "empty", "only broken"])
def test_no_record_is_one_sentence_with_the_way_out(tmp_path, what):
    folder = tmp_path / "nowhere" if what == "no folder" else tmp_path
    if what == "only broken":
        (folder / "runs").mkdir()
        (folder / "runs/a.json").write_text("{")
    with pytest.raises(UserError, match="set results_dir") as raised:
        collect(folder)
    assert str(folder) in str(raised.value)
    assert ("runs/a.json" in str(raised.value)) == (what == "only broken")


def test_a_folder_in_the_place_of_a_record_is_named(folder_of, record_of):
    folder = folder_of([record_of()])
    (folder / "runs/x.json").mkdir()
    assert [one.source for one in collect(folder).unreadable] == ["runs/x.json"]
