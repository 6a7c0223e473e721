"""Two folders of runs in one: each run once, nothing overwritten, and nothing written in part."""

import json
import re
from pathlib import Path

import pytest

from dpbench.comparison.verify.merge import merge
from dpbench.runs.config.compose import compose
from dpbench.runs.records import collect
from dpbench.runs.records.record import Record
from dpbench.runs.records.sweep_list import read_list, write_list
from dpbench.runs.records.trained_model import model_file
from dpbench.system.errors import UserError

PRIVACY = {
    **{"rdp": 1.0, "pld": 0.9, "gdp": 0.8, "claimed": 1.0, "delta": 1e-5, "noise_multiplier": 2.0},
    **{"steps": 3, "guarantee": "proven", "why": "as tested", "ledger": []},
}


def record(seed: int, *overrides: str, accuracy: float = 0.5, host: str = "a") -> Record:
    metrics = {"test/accuracy": accuracy, "test/loss": float("nan")}
    config = compose([f"seed={seed}", *overrides])
    return Record(config, metrics, PRIVACY, {"host": host}, "complete")


@pytest.fixture
def folders(tmp_path):
    """Two folders: runs 0 and 1, of which the second one has 1 too, and 2 in a table's file."""
    a, b = tmp_path / "a", tmp_path / "b"
    for seed in (0, 1):
        record(seed).save(a)
    record(1, host="b").save(b)
    (b / "tables").mkdir()
    (b / "tables/some.records.jsonl").write_text(record(2, host="b").json() + "\n")
    return a, b


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_each_run_is_there_once_and_nothing_is_overwritten(folders):
    a, b = folders
    before, others = files(a), files(b)
    assert merge([str(a), str(b)]) == f"{a}: 3 runs, 1 of them new."
    assert sorted(r.seed for r in collect.readable(a)[0]) == [0, 1, 2]
    assert before.items() <= files(a).items()
    assert files(b) == others


def test_a_second_merge_changes_nothing(folders):
    a, b = folders
    merge([str(a), str(b)])
    before = files(a)
    assert merge([str(a), str(b)]) == f"{a}: 3 runs, 0 of them new."
    assert files(a) == before


def test_a_third_folder_leaves_both_as_they_were(folders, tmp_path):
    before = [files(folder) for folder in folders]
    merge([*map(str, folders), f"out={tmp_path / 'c'}"])
    assert len(list((tmp_path / "c/runs").iterdir())) == 3
    assert [files(folder) for folder in folders] == before


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda b: record(1, accuracy=0.6).save(b), "has different metrics in .*a/runs/.* and .*b"),
        (lambda b: next((b / "runs").iterdir()).write_text("{"), "b/runs/"),
        (lambda b: rename(b), "b/runs/0{16}.json is the record of another run, .*: copy it again"),
        (lambda b: of_later_version(b), "is of schema 99, .*: read it with the version of dpbench"),
    ],
)
def test_conflicts_and_damage_are_named_and_nothing_is_written(folders, capsys, spoil, reason):
    a, b = folders
    spoil(b)
    before = files(a)
    with pytest.raises(UserError, match="nothing was merged, because of 1 problem"):
        merge([str(a), str(b)])
    assert files(a) == before
    assert re.search(reason, capsys.readouterr().err)


def rename(folder: Path) -> None:
    path = next((folder / "runs").iterdir())
    path.rename(path.with_name(f"{'0' * 16}.json"))


def of_later_version(folder: Path) -> None:
    path = folder / "tables/some.records.jsonl"
    path.write_text(json.dumps({"schema": 99}) + "\n")


def test_models_come_with_their_runs_under_the_names_of_the_new_folder(folders):
    a, b = folders
    secure = record(5, "noise=secure")
    secure.save(b)
    model_file(secure, b).write_bytes(b"weights")
    model_file(secure, b).with_suffix(".preparation.json").write_text("{}")
    merge([str(a), str(b)])
    kept = model_file(secure, a)
    assert kept.name != model_file(secure, b).name
    assert kept.read_bytes() == b"weights"
    assert kept.with_suffix(".preparation.json").read_text() == "{}"


def test_a_model_comes_to_a_record_that_is_there_without_it(folders):
    a, b = folders
    shared = record(1, host="b")
    model_file(shared, b).parent.mkdir()
    model_file(shared, b).write_bytes(b"weights")
    merge([str(a), str(b)])
    assert model_file(shared, a).read_bytes() == b"weights"


def test_a_folder_without_models_gets_no_file(folders):
    a, b = folders
    record(5, "noise=secure").save(b)
    before = files(b)
    merge([str(a), str(b)])
    assert files(b) == before


def test_two_records_of_a_run_in_one_folder_are_compared_too(folders, capsys):
    a, b = folders
    (b / "tables/other.records.jsonl").write_text(record(1, accuracy=0.6).json() + "\n")
    with pytest.raises(UserError, match="nothing was merged"):
        merge([str(a), str(b)])
    assert "has different metrics in" in capsys.readouterr().err


def test_a_setting_that_a_later_version_added_is_no_difference(folders):
    a, b = folders
    ours, theirs = record(9), record(9)
    del theirs.config["trial"]
    assert theirs.digest == ours.digest
    ours.save(a)
    theirs.save(b)
    assert merge([str(a), str(b)]) == f"{a}: 4 runs, 1 of them new."


@pytest.mark.parametrize("place", ["models", "models/x.pt", "sweeps", "sweeps/mine.txt"])
def test_a_link_to_a_file_of_this_machine_is_not_followed(folders, tmp_path, place):
    a, b = folders
    (tmp_path / "secret").mkdir()
    (b / place).parent.mkdir(exist_ok=True)
    (b / place).symlink_to(tmp_path / "secret")
    before = files(a)
    with pytest.raises(UserError, match="nothing was merged, because of 1 problem"):
        merge([str(a), str(b)])
    assert files(a) == before


def test_the_folder_that_is_copied_to_may_have_its_models_elsewhere(folders, tmp_path):
    a, b = folders
    (tmp_path / "large").mkdir()
    (a / "models").symlink_to(tmp_path / "large")
    assert merge([str(a), str(b)]) == f"{a}: 3 runs, 1 of them new."


def test_an_unreadable_list_is_named_before_anything_is_written(folders):
    a, b = folders
    (b / "sweeps").mkdir()
    (b / "sweeps/mine.txt").write_bytes(b"\xff")
    before = files(a)
    with pytest.raises(UserError, match=r"mine\.txt is not UTF-8 text: run the sweep again"):
        merge([str(a), str(b)])
    assert files(a) == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["new", "b"], "new is not a folder"),
        (["loop", "b"], "loop is not a folder"),
        (["b", "loop"], "loop is not a folder"),
        (["b", "out=loop"], "loop/runs cannot be written"),
        (["b", ""], "FOLDER must be the name of a folder"),
        (["b/runs", "out=c"], "b/runs is inside a results folder: name b instead"),
    ],
)
def test_what_is_no_results_folder_is_named(folders, monkeypatch, words, reason):
    folder = folders[0].parent
    monkeypatch.chdir(folder)
    (folder / "loop").symlink_to("loop")
    before = files(folder)
    with pytest.raises(UserError, match=reason):
        merge(words)
    assert files(folder) == before


def test_a_sweep_has_the_runs_of_both(folders):
    a, b = folders
    for folder, digests in ((a, ["x", "y"]), (b, ["y", "z"])):
        write_list(folder, "mine", digests)
    merge([str(a), str(b)])
    assert read_list(a, "mine") == {"x", "y", "z"}


def test_published_records_without_a_seed_stay(folders):
    a, b = folders
    fields = json.loads(record(7).json())
    published = Record(
        fields["config"] | {"seed": None}, {"test/accuracy": 0.1}, PRIVACY, {}, "complete"
    )
    (b / "tables/public.records.jsonl").write_text(published.json() + "\n")
    assert merge([str(a), str(b)]) == f"{a}: 3 runs, 1 of them new."


def test_one_folder_is_not_merged(folders):
    with pytest.raises(UserError, match="merge needs two results folders"):
        merge([str(folders[0])])
