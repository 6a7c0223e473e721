"""Records are believed only where they are whole, well-formed and their own."""

import json
import math
import os
import random
from pathlib import Path

import pytest

from dpbench.runs.records.digest import digest
from dpbench.runs.records.reading import Unreadable, load, parse, read, set_aside_invalid
from dpbench.runs.records.record import SCHEMA, Record, checksum
from dpbench.system.paths import PACKAGE

COMMITTED = sorted((PACKAGE.parent / "results" / "tables").glob("*.records.jsonl"))

CONFIG = {
    "dataset": {"_target_": "dpbench.data.digits.Digits", "test_share": 0.2},
    "method": {"bound": 1.0},
    "seed": 0,
    "choices": {"dataset": "digits", "model": "logistic", "method": "dpsgd"},
}
PRIVACY = {
    **{"rdp": 2.0, "pld": 1.5, "gdp": None, "claimed": math.inf, "delta": 1e-6},
    **{"guarantee": "proven", "why": "made up", "noise_multiplier": 1, "steps": 3},
    "ledger": [{"times": 3}],
}
CALIBRATION = {
    "bins": {"count": [0, 3], "confidence": [math.nan, 0.7], "accuracy": [math.nan, 1.0]},
    "histogram": {"confidence": [1, 2], "true_class": [0, 3]},
    "interval": {"level": 0.95, "ece": [0.1, 0.2]},
    "temperature": {"temperature": 1.1, "note": "a caveat"},
}


def record(**changes) -> Record:
    fields = {
        "config": CONFIG,
        "metrics": {"test/accuracy": 0.75, "test/loss": math.nan, "test/loss/3": math.inf},
        "privacy": PRIVACY,
        "provenance": {"commit": None, "seconds": 1.5},
        "status": "complete",
        "history": {"train/loss": [2.5, math.nan], "train/not_finite": [0, 0]},
        "diagnostics": {"step/R/0": [-math.inf]},
        "calibration": CALIBRATION,
    }
    return Record(**{**fields, **changes})


def fields_of(one: Record) -> dict:
    """Its fields without a checksum, as the first records were."""
    fields = json.loads(one.json())
    del fields["checksum"]
    return fields


def spoiled(path: list[str], value: object) -> str:
    """A record with another value in one place, and the checksum of that."""
    plain = fields_of(record())
    *way, last = path
    node = plain
    for key in way:
        node = node[key]
    node[last] = value
    return json.dumps(plain | {"checksum": checksum(plain)})


def test_a_record_is_read_as_it_was_written(tmp_path):
    path = record().save(tmp_path)
    back = load(path)
    assert back.signed
    assert back.json() == record().json() == path.read_text()


def test_a_record_of_before_there_were_checksums_is_read_and_marked_and_written_as_it_was(tmp_path):
    text = json.dumps(fields_of(record()), sort_keys=True)
    path = tmp_path / f"{digest(CONFIG)}.json"
    path.write_text(text)
    assert not load(path).signed
    assert load(path).json() == text


def test_of_a_text_that_is_cut_off_the_place_is_named_once():
    whole = record().json()
    cut = whole[: whole.index("digits") + 3]
    reason = f"is not JSON: unterminated string starting at character {cut.rindex(chr(34))}"
    assert parse(cut, "a.json") == Unreadable("a.json", reason)


@pytest.mark.slow
def test_every_flipped_bit_is_noticed(tmp_path):
    whole, draw = bytearray(record().json().encode()), random.Random(0)
    for place in draw.sample(range(8 * len(whole)), 500):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path = tmp_path / f"{digest(CONFIG)}.json"
        path.write_bytes(flipped)
        assert load(path) is None


def test_prefixes_of_a_record_and_one_without_its_checksum_are_damaged():
    text = record().json()
    assert all(parse(text[:end], "x").reason for end in range(0, len(text), 37))
    assert isinstance(parse(text, "x"), Record)
    text = json.dumps(fields_of(record(covered={"privacy": True})))
    assert parse(text, "x").reason == "is damaged: it has no checksum"


def test_a_record_in_another_run_s_place_is_not_that_run_s(tmp_path):
    other = {**CONFIG, "seed": 1}
    path = tmp_path / f"{digest(other)}.json"
    path.write_text(record().json())
    assert load(path) is None
    assert digest(CONFIG) in read(path).reason


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (["schema"], SCHEMA + 98, f"schema {SCHEMA + 98}"),
        (["schema"], None, "schema None"),
        (["config"], [], "config"),
        (["config", "choices"], None, "config.choices"),
        (["config", "choices", "model"], 3, "config.choices.model"),
        (["config", "method"], "x", "config.method"),
        (["config", "seed"], "0", "config.seed"),
        (["config", "seed"], True, "config.seed"),
        (["metrics"], None, "metrics"),
        (["metrics", "test/loss"], "low", "metrics"),
        (["metrics", "test/loss"], True, "metrics"),
        pytest.param(["metrics", "test/loss"], 10**400, "out of range", id="huge"),
        (["privacy"], None, "privacy"),
        (["privacy", "guarantee"], None, "guarantee"),
        (["privacy", "guarantee"], "certain", "guarantee"),
        (["privacy", "pld"], "1.5", "pld"),
        (["privacy", "ledger"], {}, "ledger"),
        *((["privacy", "delta"], d, "between 0 and 1") for d in (0, 1.0, -1, math.nan, math.inf)),
        (["privacy", "adjacency"], "replace one example", "another adjacency than ours"),
        (["metrics", "test/accuracy"], 80.0, "test/accuracy 80.0 is not between 0 and 1"),
        (["metrics", "test/accuracy/a"], -0.5, "test/accuracy/a -0.5 is not between 0 and 1"),
        (["metrics", "test/ece"], math.inf, "test/ece inf is not between 0 and 1"),
        (["provenance"], 3, "provenance"),
        (["status"], None, "status"),
        (["status"], "done", "status"),
        (["more"], 1, "the field 'more', which this version of dpbench does not know; if a later"),
        (["history"], {"train/loss": 3}, "history"),
        (["history"], {"train/loss": ["x"]}, "history"),
        (["diagnostics"], [1], "diagnostics"),
        (["calibration"], {"bins": {"count": [1]}}, "calibration"),
        (["calibration", "bins", "count"], [1], "lengths"),
        (["calibration", "bins", "count"], ["a", 1], "count"),
    ],
)
def test_a_record_of_another_shape_is_left_out_with_the_reason(path, value, why):
    assert why in parse(spoiled(path, value), "x").reason


@pytest.mark.parametrize("name", ["more", "schema"])
def test_a_record_of_another_version_is_kept_beside_that_of_its_repeated_run(name, tmp_path):
    path, text = tmp_path / "0a.json", spoiled([name], 2)
    path.write_text(text)
    with pytest.warns(UserWarning, match=f"{name}.*: it is kept as 0a.json.kept, and the run is"):
        set_aside_invalid(path)
    assert [*tmp_path.iterdir()] == [tmp_path / "0a.json.kept"]
    assert (tmp_path / "0a.json.kept").read_text() == text


def test_a_damaged_record_is_left_to_be_overwritten(tmp_path):
    path = tmp_path / "0a.json"
    path.write_text(record().json()[:-9])
    with pytest.warns(UserWarning, match="is not JSON: .*: the run is repeated"):
        set_aside_invalid(path)
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("test/accuracy", math.nan),
        ("test/accuracy", 1.0000001),
        ("validation/noisy_accuracy", 1.2),
        ("test/r2", -3.0),
        ("test/of_a_plug_in", 80.0),
    ],
)
def test_what_is_no_share_may_be_any_number(name, value):
    assert isinstance(parse(spoiled(["metrics", name], value), "x"), Record)


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "{", "[" * 200_000, '{"a":' * 200_000, '{"schema": 1}', "1e999"),
        '{"schema": 1, "x": ' + "9" * 5000 + "}",
        '{"schema": ' + "9" * 4000 + "}",
        "\0",
    ],
    ids=range(11),
)
def test_no_text_crashes_it(text, tmp_path):
    assert parse(text, "x").reason
    path = tmp_path / "record.json"
    path.write_text(text)
    assert load(path) is None


def test_nothing_but_a_file_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")  # which would wait for somebody to write
    for name in ("pipe.json", "absent.json", "."):
        assert isinstance(read(tmp_path / name), Unreadable)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    assert read(tmp_path / "bytes.json").reason == "is not UTF-8 text"


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_every_committed_record_is_read_and_written_as_it_is(path):
    lines = path.read_text().splitlines()
    assert lines
    for line in lines:
        assert parse(line, "x").json() == line


def test_a_record_as_it_was_written_is_not_serialised_again(monkeypatch):
    monkeypatch.setattr("dpbench.records.reading.checksum", pytest.fail)
    assert isinstance(parse(record().json(), "x"), Record)


@pytest.mark.parametrize("change", [{"indent": 1}, {"separators": (",", ":")}])
def test_a_record_that_was_written_in_another_way_has_the_same_checksum(change):
    text = json.dumps(json.loads(record().json()), **change)
    assert isinstance(parse(text, "x"), Record)
    assert isinstance(parse(text.replace("0.75", "0.5"), "x"), Unreadable)


def test_a_file_larger_than_any_record_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "0123456789abcdef.json"
    path.touch()
    os.truncate(path, 10**9)  # sparse
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("it was read"))
    assert read(path) == Unreadable(path.name, "has more than 256 MiB, and is not read")
