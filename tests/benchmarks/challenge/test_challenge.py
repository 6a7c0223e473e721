"""A method through a challenge: its protocol, its page, and a recount by somebody else."""

import csv
import hashlib
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from dpbench.benchmarks.challenge import protocol as protocols
from dpbench.benchmarks.challenge.command import challenge
from dpbench.benchmarks.challenge.entry import read_submission
from dpbench.benchmarks.challenge.protocol import protocol_of, versions
from msgspec import structs

from dpbench.comparison.reproduce.command import reproduce
from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import searching
from dpbench.runs.records.digest import digest
from dpbench.runs.records.record import checksum
from dpbench.system.errors import UserError
from dpbench.system.paths import searches_folder

SMALL = """
# @package _global_
defaults:
  - override /dataset: digits
  - override /model: logistic
  - override /privacy: eps3
  - override /optimizer: sgd
epochs: 1
batch_size: 128
table:
  title: "A small challenge"
  paper: "Ours"
  published: null
  published_runs: 2
  epsilon: null
  baseline: dpsgd
  methods: [dpsgd, dpsgd_f]
  groups: []
  seeds: [0, 1]
  spread: standard deviation
  columns: {accuracy: {metric: test/accuracy}}
  notes: []
  challenge:
    trials: 3
    trial_seed: 7
    finalists: 2
    final_seeds: 2
    rule: best_validation
    validation: 0.2
    metric: test/accuracy
"""
RUNS = 3 + 2 * 2 + 2


@pytest.fixture
def small(tmp_path, monkeypatch, request):
    """small(*arguments): a challenge of version 0, whose two baselines have been trained; as many
    searches of each entry as the test asks for."""
    rows = f"  searches: {getattr(request, 'param', 1)}\n  seeds: ["
    (tmp_path / "conf" / "table").mkdir(parents=True)
    (tmp_path / "conf" / "table" / "challenge_v0.yaml").write_text(
        SMALL.replace("  seeds: [", rows)
    )
    monkeypatch.setattr(protocols, "searches_folder", lambda: tmp_path / "search")
    with searching([tmp_path / "conf"]):
        reproduce("challenge_v0", [f"results_dir={tmp_path}"])
        yield lambda *more: challenge(["version=0", "method=dpsgd_global", *more])


@pytest.mark.slow
@pytest.mark.parametrize("small", [2], indirect=True)
def test_an_entry_has_as_many_searches_as_the_baselines_and_their_means_are_compared(
    small, tmp_path
):
    page, _ = small(f"results_dir={tmp_path}")
    assert page.count("Chosen: ") == 2
    assert "2 such searches, whose means are compared" in page
    searches = [tmp_path / "search" / f"challenge_v0-dpsgd_global-{n}.csv" for n in (1, 2)]
    first, second = (path.read_text() for path in searches)
    assert first != second
    lines = submission(tmp_path).read_text().splitlines()
    assert len(lines) == 2 * (3 + 2 * 2) + 2


def submission(folder: Path) -> Path:
    return folder / "challenges" / "challenge_v0-dpsgd_global.records.jsonl"


@pytest.mark.slow
def test_an_entry_is_searched_tested_and_recounted_from_its_records(
    small, tmp_path, capsys, monkeypatch
):
    page, problems = small(f"results_dir={tmp_path / 'mine'}")
    assert f"takes {RUNS} runs of dpsgd_global: 3 trials, 4 of finalists and 2" in (
        capsys.readouterr().err
    )
    assert problems == []
    assert {"| DP-SGD |", "| DPSGD-F |", "| DP-SGD (global), the entry |"} <= {
        f"{line.split(' | ')[0]} |" for line in page.splitlines()
    }
    file = submission(tmp_path / "mine")
    assert file.with_name("challenge_v0-dpsgd_global.md").read_text() == page
    assert len(file.read_text().splitlines()) == RUNS

    with monkeypatch.context() as changed:
        changed.setattr("dpbench.records.code.code_of", lambda *_: "other")
        small(f"results_dir={tmp_path / 'mine'}")
        assert f"{RUNS} of {RUNS} records were produced by" in capsys.readouterr().err

    trained = {path.name for path in (tmp_path / "mine" / "runs").iterdir()}
    (tmp_path / "o'brien").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "o'brien"))
    again, problems = small(f"recount={file}", f"results_dir={tmp_path / 'mine'}")
    assert again == page
    assert [said for said in problems if "uncommitted" not in said] == []
    assert {path.name for path in (tmp_path / "mine" / "runs").iterdir()} == trained


@pytest.mark.slow
def test_a_recount_trains_what_a_file_lacks_and_finds_what_is_false(small, tmp_path):
    page, _ = small(f"results_dir={tmp_path / 'mine'}")
    file = submission(tmp_path / "mine")
    lines = file.read_text().splitlines()
    record = json.loads(lines[0])
    del record["checksum"]
    record["privacy"]["pld"] = 0.01
    forged = json.dumps(record | {"checksum": checksum(record)}, sort_keys=True)
    other = (next((tmp_path / "runs").iterdir())).read_text().strip()
    file.write_text("\n".join([forged, *lines[2:], other, lines[-1]]) + "\n")
    again, problems = small(f"recount={file}")
    assert again.split("seconds")[0] == page.split("seconds")[0]
    said = " ".join(problems)
    assert "lacks 1 run of the protocol" in said
    assert "1 record of other runs" in said
    assert "1 record of runs it has already; the last counts" in said
    with pytest.raises(UserError, match=r"recount=.* has no trial of dpsgd_global with these"):
        small(f"recount={file}", "optimizer.momentum=0.5")
    assert "line 1 has pld=0.01, but its ledger gives" in said


def test_a_submitted_file_is_named_where_it_is_wrong(tmp_path):
    file = tmp_path / "entry.records.jsonl"
    file.write_text("\n{\n")
    with pytest.raises(UserError, match=f"^{file}, line 2 is not JSON"):
        read_submission(file)


FROZEN = {
    "1": "d0e91729d1082e9a",
    "2": "4e1b5a08e48e1736",
    "3": "5b791f681509c6ff",
    "4": "87d6c57fd592fe48",
}


def identity(version: str) -> str:
    """A hash of all that a version determines: the rules, and the settings of its runs."""
    protocol = protocol_of(version)
    condition, *_ = protocol.target.conditions
    request, *_ = protocol.searches(condition, "x", ["method=dpsgd"])
    chosen = {"method.bound": "1", "optimizer.lr": "0.5"}
    # Digests leave out settings that were added later and are off.
    tested = [digest(compose(run)) for run in protocol.tested(request, chosen)]
    baselines = [digest(compose(cell)) for cell in protocol.target.cells()]
    rules = {name: value for name, value in structs.asdict(protocol.rules).items() if value}
    text = json.dumps([rules, request.identity, tested, baselines], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.slow
def test_a_published_version_never_changes():
    assert {version: identity(version) for version in versions()} == FROZEN


@pytest.mark.slow
@pytest.mark.parametrize("version", versions())
def test_the_committed_baselines_are_those_that_the_table_describes(version):
    protocol = protocol_of(version)
    for rows in protocol.baselines().values():
        assert {*rows} == {*protocol.target.table.methods}
        assert {len(records) for records in rows.values()} == {len(protocol.seeds)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "row", "own", "search"),
    [
        ("1", "dpsgd_psac", ["method=dpsgd", "method.clip=psac"], "frontier_table1-dutch-{}-space"),
        ("1", "slaclip", ["method=slaclip"], "frontier_table1-dutch-{}-space"),
        ("2", "doppler", ["method=doppler"], "frontier_table9-dutch-eps0.1-{}-3"),
        ("3", "disk", ["method=disk"], "frontier_table12-cifar10-eps0.3-{}-3"),
        ("4", "doppler", ["method=doppler"], "frontier_table11-mnist_unbalanced-eps1-{}-3"),
    ],
)
def test_the_baselines_went_through_the_search_that_an_entry_goes_through(
    version, row, own, search
):
    """The committed searches name the records of their trials, which are named by settings."""
    protocol = protocol_of(version)
    condition, *_ = protocol.target.conditions
    request = protocol.searches(condition, row, own)[0 if version == "1" else 2]
    with (searches_folder() / f"{search.format(row)}.csv").open() as file:
        lines = list(csv.DictReader(file))
    finals = [line for line in lines if line["stage"] == "final"]
    drawn = [*map(request.space.values, request.space.random(request.count, request.options.draw))]
    start = [request.start.values] if request.start else []
    best = [{r.key: line[r.key] for r in request.space.ranges} for line in finals]
    trials = [line for line in lines[len(finals) :] if int(line["trial"]) <= request.count]
    for asked, settings, committed in (
        (request, [*start, *drawn], trials),
        (replace(request, seeds=request.final_seeds), best, finals),
    ):
        runs = [run for values in settings for run in asked.runs(values)]
        named = {name for line in committed for name in line["records"].split()}
        assert {run.digest for run in runs} == named
