"""Every file that dpbench reads, damaged or somebody else's: a result or one sentence, and soon.

Cases are drawn from a fixed seed: a few of each kind in every test run, thousands at length.
"""

import contextlib
import copy
import functools
import io
import json
import os
import random
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
import torch
from dpbench.benchmarks.exposure.audit_table import finished_rows

from dpbench import load_model, load_preparation
from dpbench.comparison.dashboard.command import report
from dpbench.comparison.dashboard.documents import audited, searches
from dpbench.comparison.dashboard.tables import pages
from dpbench.comparison.dashboard.track import track
from dpbench.comparison.search import private
from dpbench.comparison.tables.published import read_epsilon, read_published
from dpbench.comparison.tables.sweep.command import table
from dpbench.comparison.verify.command import verify
from dpbench.comparison.verify.tables import unsupported_lines
from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import as_overrides
from dpbench.runs.config.table_rules import chosen_text
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.collect import collect, readable_records_in
from dpbench.runs.records.digest import digest_of_scientific, scientific
from dpbench.runs.records.frames import frame
from dpbench.runs.records.publish import publish
from dpbench.runs.records.record import checksum
from dpbench.runs.records.sweep_list import read_list
from dpbench.runs.records.trackers import wandb
from dpbench.runs.training import progress
from dpbench.runs.training.checkpoints import Checkpoints, serialise
from dpbench.system.errors import os_errors_reported
from tests.fuzzing import fault
from tests.plugin_files import SHARP

ODD = [
    *(None, True, 0, -1, 7, 2**63, 10**23, 10**400, 0.5, 1e308, float("nan"), float("inf")),
    *(
        "",
        "x",
        "0",
        "../../victim",
        "/etc/passwd",
        "a/b",
        "..",
        "\ud800",
        "\0",
        "a\nb",
        "${epochs}",
    ),
    *("${oc.env:HOME}", "*", "é" * 300, "9" * 5000, "os.system", "<script>", "-1", "nan", "$(x)"),
    *([], [0], [[1]], [None], ["x"], {}, {"a": 1}, {"_target_": "os.system"}, [1.5] * 2000),
]
DEEP = b"[" * 100_000


@dataclass(frozen=True)
class Kind:
    """A kind of file: its place in a folder, a whole one, and what reads it.

    fields: whether it is JSON, of which single values are changed as well. sign: makes changed
    values a whole file again, where it has a checksum.
    """

    place: str
    whole: bytes
    read: object
    fields: bool = False
    sign: object = staticmethod(lambda plain: json.dumps(plain).encode())


def reading(kind, path):
    """A case that reads a file, and says nothing to the user."""

    def case():
        with contextlib.redirect_stderr(io.StringIO()), os_errors_reported():
            kind.read(path)

    return case


def damaged(whole, draw):
    """The bytes of a file with one fault."""
    place, more = draw.randrange(len(whole) + 1), draw.randbytes(draw.choice([1, 9, 3000]))
    faults = [
        lambda: flipped(whole, draw),
        lambda: whole[:place],
        lambda: whole + more,
        lambda: whole[:place] + more + whole[place:],
        lambda: whole[:place] + whole[place + draw.randrange(1, 40) :],
        lambda: whole[:place] + draw.choice([DEEP, b"{" * 5000, b"../../victim", b"&a [*a]"]),
        lambda: whole.decode("latin-1").encode(draw.choice(["utf-16", "utf-8-sig", "utf-32"])),
        lambda: word_replaced(whole, draw),
        lambda: draw.choice([b"", b"\n", b"\0" * 99, DEEP, b"null", b"[]", b"{}", b"9" * 5000]),
    ]
    return draw.choice(faults)()


def flipped(whole, draw):
    """With one to eight bits flipped."""
    found = bytearray(whole)
    for _ in range(draw.randint(1, 8)):
        found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


def word_replaced(whole, draw):
    """With an odd value in the place of one word."""
    words = whole.split(b" ")
    words[draw.randrange(len(words))] = str(draw.choice(ODD)).encode(errors="replace")
    return b" ".join(words)


def places(node, path=()):
    """The way to every value in JSON."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def changed(plain, draw):
    """JSON with an odd value in one place, without it, or with an odd key beside it."""
    plain = copy.deepcopy(plain)
    *way, last = draw.choice([*places(plain)])
    node = plain
    for key in way:
        node = node[key]
    how = draw.random()
    if how < 0.1:
        del node[last]
    elif how < 0.2 and isinstance(node, dict):
        node[draw.choice([text for text in ODD if isinstance(text, str)])] = draw.choice(ODD)
    else:
        node[last] = copy.deepcopy(draw.choice(ODD))
    return plain


def placed(kind, path, draw):
    """Put another thing in the place of the file."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    how = draw.random()
    if how < 0.06:
        draw.choice(
            [
                os.mkfifo,
                os.mkdir,
                lambda path: path.symlink_to("/dev/zero"),
                lambda path: path.symlink_to("nowhere"),
                lambda path: path.symlink_to(path.name),
            ]
        )(path)
    elif kind.fields and how < 0.6:
        path.write_bytes(kind.sign(changed(json.loads(kind.whole), draw)))
    else:
        path.write_bytes(damaged(kind.whole, draw))
    return path.read_bytes()[:300] if path.is_file() else path


def faults(kind, folder, count, seed=0):
    """The first faults of a kind of file in many cases, and what was in the file."""
    path = folder / kind.place
    path.parent.mkdir(parents=True, exist_ok=True)
    draw, found = random.Random(seed), []
    for case in range(count):
        content = placed(kind, path, draw)
        if why := fault(reading(kind, path)):
            found.append(f"case {case}: {why}\n    {content!r}")
    return found


SMALL = ["epochs=1", "model=logistic", "batch_size=512", "privacy=noise1"]


def signed(plain):
    """The bytes of a record with these fields, with the right checksum."""
    if isinstance(plain, dict):
        plain.pop("checksum", None)
        plain["checksum"] = checksum(plain)
    return json.dumps(plain, sort_keys=True).encode()


def read_record(path):
    """All that reads records, with one under the name of its run beside a whole one."""
    folder = path.parents[1]
    with contextlib.suppress(Exception):
        plain = json.loads(path.read_bytes() if path.is_file() else b"")
        name = digest_of_scientific(scientific(plain["config"]))
        path = path.replace(path.with_name(f"{name}.json"))
    try:
        for entry in collect(folder):
            assert entry.source
        frame(folder)
        table([str(folder), f"out={folder}/t"])
        report([f"results_dir={folder}", f"out={folder}/r.html"])
        publish([f"results_dir={folder}", f"out={folder}/p.jsonl"])
        track([f"results_dir={folder}", "tracker=csv"])
        verify([f"results_dir={folder}"])
    finally:
        path.unlink(missing_ok=True)


def read_checkpoint(path):
    Checkpoints(path.parent, None).resume_from_last({}, lambda state: state["a"].sum())


def read_preparation(path):
    load_preparation(path)(pd.DataFrame({"age": [1, 2], "town": ["a", "b"]}))


def read_option(path):
    prepare(run_config(["method=mine", *SMALL[:3], *as_overrides([path.parents[1]])]))


def read_table(path):
    compose(["+table=mine", "method=sgd", *as_overrides([path.parents[1]])])


def read_csv(path):
    with contextlib.chdir(path.parent):
        config = compose(["dataset=csv", f"dataset.file={path}", "dataset.target=rich"])
    from dpbench.runs.config.buildable import build

    build("dataset", config["dataset"]).load(path.parent, 0)


def read_table_files(path):
    assert pages(path.parents[1])
    for lines in path.parent.glob("*.records.jsonl"):
        assert list(unsupported_lines(lines, readable_records_in(lines))) is not None


def read_printed(path):
    read_published(path, ["dataset"])
    read_epsilon(path, "adult")


def read_sweep(path):
    read_list(path.parents[1], "mine")


def shown(path):
    """What the report shows of audits and searches."""
    return audited(path.parents[1]), searches(path.parents[1])


def read_search(path):
    for suffix, whole in ((".csv", TRIALS), (".json", json.dumps(SEARCH).encode())):
        beside = path.with_suffix(suffix)
        if not os.path.lexists(beside):
            beside.write_bytes(whole)
    shown(path)
    chosen_text("s", path.parent)


def read_steps(path):
    with mock.patch("time.time", return_value=0.0):  # of a sweep that began earlier
        steps = progress.running_steps(path.parents[2], {path.parent.name: "run"})
    steps()


ROWS = (f"{20 + n},{'ab'[n % 2]},{'yn'[n % 3 > 0]}\n" for n in range(40))
PEOPLE = "age,town,rich\n" + "".join(ROWS)
PARQUET = io.BytesIO()
pd.read_csv(io.StringIO(PEOPLE)).to_parquet(PARQUET)
PRINTED = b"# Table 1\ndataset,method,column,value,spread,epsilon\nadult,dpsgd,acc,80.0,0.1,3\n"
PREPARATION = {
    "numbers": {"age": [40.0, 15.0]},
    "categories": {"town": ["a", "b"]},
    "classes": ["n", "y"],
    "target": [0.0, 1.0],
}
TRIALS = b"""\
trial,optimizer.lr,n,validation/accuracy,validation/loss,failed
2,0.5,1,0.6,1.3,
1,1,1,0.5,2,
"""
SEARCH = {
    "choices": {"dataset": "dutch", "model": "mlp", "method": "bam"},
    "ranges": {"optimizer.lr": "0.5,1"},
    "rule": "best_validation",
    "chosen": 2,
    "ends": [],
}
AUDIT = [{"cells": ["a", "b"], "label": "x", "claimed": 1.0, "audited": 0.5, "refuted": False}]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A results folder with a record, its model, and a table with its records."""
    from dpbench.comparison.reproduce.command import reproduce

    folder = tmp_path_factory.mktemp("whole")
    load_or_run(run_config([*SMALL, f"results_dir={folder}", "save_model=true"]), quiet=True)
    small = ["epochs=1", "model=logistic", "table.methods=[sgd]", "table.seeds=[0]"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reproduce("demo", [*small, "table.claims={}", f"results_dir={folder}"])
    return folder


@pytest.fixture(scope="module")
def kinds(results):
    """Every kind of file, by name."""
    (model,) = results.glob("models/*.pt")
    text = {p.suffix: p.read_bytes() for p in results.glob("tables/demo*")}
    conf = Path("conf/table/demo.yaml").read_bytes()
    key, checksum_of_key = "ab" * 32, functools.partial(private._checksum, Path("a.key"))
    record = (results / "runs" / f"{model.stem}.json").read_bytes()
    return {
        "record": Kind("runs/x.json", record, read_record, True, signed),
        "records of a table": Kind("tables/demo.records.jsonl", text[".jsonl"], read_table_files),
        "data of a table": Kind("tables/demo.json", text[".json"], read_table_files, True),
        "page of a table": Kind("tables/demo.md", text[".md"], read_table_files),
        "csv of a table": Kind("tables/demo.csv", text[".csv"], read_table_files),
        "checkpoint": Kind(
            "run/000001.ckpt",
            b"".join(serialise({"a": torch.ones(3)}, {"run": "run"})),
            read_checkpoint,
        ),
        "model": Kind("m.pt", model.read_bytes(), load_model),
        "preparation": Kind("p.json", json.dumps(PREPARATION).encode(), read_preparation, True),
        "sweep": Kind("sweeps/mine.txt", b"0123456789abcdef\n" * 9, read_sweep),
        "key": Kind("a.key", f"{key} {checksum_of_key(key)}\n".encode(), private._read_key),
        "tracker": Kind("wandb/abc.json", b'{"id": "abc-00000000"}', wandb._unfinished, True),
        "option": Kind("method/mine.yaml", SHARP.encode(), read_option),
        "table": Kind("table/mine.yaml", conf, read_table),
        "own data": Kind("people.csv", PEOPLE.encode(), read_csv),
        "own parquet": Kind("people.parquet", PARQUET.getvalue(), read_csv),
        "published": Kind("t.csv", PRINTED, read_printed),
        "steps": Kind("checkpoints/run/steps", b"3 30".ljust(40), read_steps),
        "audits": Kind("audits/x.json", json.dumps(AUDIT).encode(), finished_rows, True),
        "audit": Kind("tables/audit.csv", Path("results/tables/audit.csv").read_bytes(), shown),
        "trials": Kind("search/s.csv", TRIALS, read_search),
        "search": Kind("search/s.json", json.dumps(SEARCH).encode(), read_search, True),
    }


NAMES = (
    *("record", "records of a table", "data of a table", "page of a table", "csv of a table"),
    *("checkpoint", "model"),
    *("preparation", "sweep", "key", "tracker", "option", "table", "own data", "published"),
    "own parquet",
    *("steps", "audits", "audit", "trials", "search"),
)
SLOW = {name: 10 for name in NAMES if name.startswith("record") or name.endswith("of a table")}
"""Kinds of which one case takes as long as so many of the others."""


@pytest.fixture
def folder(results, kinds, tmp_path, request):
    """A folder with what belongs beside the file, and a victim outside of it."""
    name = request.getfixturevalue("name")
    if name.endswith("of a table"):
        shutil.copytree(results / "tables", tmp_path / "theirs" / "tables")
    if name == "record":
        shutil.copytree(results / "runs", tmp_path / "theirs" / "runs")
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("precious")
    return tmp_path / "theirs"


def check(kinds, name, folder, count):
    assert {*kinds} == {*NAMES}
    path = folder / kinds[name].place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(kinds[name].whole)
    assert (why := fault(reading(kinds[name], path))) is None, f"a whole file: {why}"
    found = faults(kinds[name], folder, count // SLOW.get(name, 1))
    assert not found, "\n".join(found[:20])
    assert sorted(p.name for p in folder.parent.iterdir()) == ["theirs", "victim"]
    assert (folder.parent / "victim" / "file").read_text() == "precious"


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_read_or_refused_in_a_sentence(kinds, name, folder):
    check(kinds, name, folder, 10)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_thousands_of_files_are_read_or_refused_in_a_sentence(kinds, name, folder):
    check(kinds, name, folder, int(os.environ.get("FUZZ", 600)))
