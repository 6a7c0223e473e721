"""A table from start to end: a small one on digits, made in a copy of the checkout."""

import csv
import dataclasses
import io
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpbench.comparison.reproduce.command import reproduce
from dpbench.comparison.reproduce.render import render
from dpbench.comparison.reproduce.target import target_of
from dpbench.comparison.tables.not_run import NotRun
from dpbench.runs.records.reading import load, parse, parse_named
from dpbench.system import paths as resources
from dpbench.system.errors import UserError

ROOT = Path(__file__).resolve().parents[3]

TINY = """\
# @package _global_
# Source: nobody. Cost: seconds. Expect: nothing.
defaults:
  - columns@table.columns: tiny
  - override /dataset: digits
  - override /model: logistic
  - override /privacy: noise1

table:
  title: "Digits: a toy (Table 1)"
  paper: "Nobody 2020"
  published: tiny/table1.csv
  published_runs: 2
  epsilon: tiny/epsilon.csv
  baseline: sgd
  methods: [sgd, dpsgd, fairlens, dpsgd_f]
  variants: {dpsgd_f: [corrected, paper], dpsgd: [corrected, {optimizer.lr: 0.1}]}
  claims:
    cost:
      statement: "Privacy costs accuracy."
      source: page 1
      better: [sgd]
      than: [dpsgd]
      in: [acc]
  seeds: [0, 1]
  groups: ["3", "8"]
  spread: standard error
  notes: ["A note."]
  settings:
    - set: {epochs: 1, batch_size: 256, optimizer: {lr: 0.5}}
    - when: {method: dpsgd}
      set: {method: {bound: 0.5}}
"""
COLUMNS = """\
# Two columns.
acc: {metric: test/accuracy, factor: 100, digits: 1, better: higher}
pi_ab: {metric: privacy_cost_gap, factor: 100, digits: 1, better: lower}
"""
PUBLISHED = """\
method,column,value,spread
sgd,acc,80.0,0.5
dpsgd,acc,50.0,0.5
fairlens,acc,60.0,0.5
dpsgd_f,pi_ab,1.0,0.5
"""
NOTE = "digits: The publishers' split is not used: the test images are drawn by seed."
RUNS = 2 + 2 * 2 + 2 * 2  # sgd; dpsgd and dpsgd_f in both variants; fairlens cannot be


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the library with the toy table in it; this process reads its conf/ too."""
    root = tmp_path_factory.mktemp("checkout")
    for folder in ("dpbench", "conf", "benchmarks"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, root / folder, ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / "conf" / "table" / "tiny.yaml").write_text(TINY)
    (root / "conf" / "table" / "columns" / "tiny.yaml").write_text(COLUMNS)
    (root / "benchmarks" / "tiny").mkdir()
    (root / "benchmarks" / "tiny" / "table1.csv").write_text(PUBLISHED)
    (root / "benchmarks" / "tiny" / "epsilon.csv").write_text("dataset,epsilon\ndigits,1.23\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resources, "PACKAGE", root / "dpbench")
        yield root


@pytest.fixture(scope="module")
def finished(checkout, tmp_path_factory):
    """The results folder of the whole toy table, and what was printed. Nobody writes to it."""
    folder = tmp_path_factory.mktemp("finished")
    return SimpleNamespace(folder=folder, text=reproduce("tiny", [f"results_dir={folder}"]))


@pytest.fixture
def results(finished, tmp_path):
    """A results folder of one's own in which every run is there already."""
    shutil.copytree(finished.folder / "runs", tmp_path / "runs")
    return tmp_path


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))


def start(checkout, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "dpbench", "reproduce", *map(str, arguments)],
        cwd=checkout,  # which comes before everything else with `python -m`
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def tables(folder, name="tiny"):
    """The table's files for readers, byte for byte."""
    suffixes = ("md", "csv", "claims.csv", "tex")
    return {s: (folder / "tables" / f"{name}.{s}").read_bytes() for s in suffixes}


def measured(folder):
    """What the records say, apart from when and where."""
    found = {}
    for path in sorted((folder / "runs").glob("*.json")):
        fields = json.loads(path.read_text())
        del fields["provenance"], fields["checksum"]
        found[path.name] = json.dumps(fields, sort_keys=True)
    return found


def records(folder, name):
    lines = (folder / "tables" / f"{name}.records.jsonl").read_text().splitlines()
    return [parse(line, name) for line in lines]


def verdicts(folder, name):
    rows = csv.DictReader(io.StringIO((folder / "tables" / f"{name}.csv").read_text()))
    return {row["verdict"] for row in rows}


@pytest.mark.slow
def test_a_table_is_printed_and_written_with_its_records(finished):
    tables = finished.folder / "tables"
    assert sorted(path.name for path in tables.iterdir()) == [
        "tiny.claims.csv",
        "tiny.csv",
        "tiny.json",
        "tiny.md",
        "tiny.records.jsonl",
        "tiny.tex",
    ]
    assert (tables / "tiny.md").read_text() == finished.text
    assert finished.text.startswith("# Digits: a toy (Table 1)\n")
    assert "Scale: paper" in finished.text
    assert "1.23" in finished.text, "the printed epsilon"
    assert finished.text.index("- 1 claim: ") < finished.text.index("## Claims\n")
    assert finished.text.count(f"- {NOTE}\n") == 1
    kept = {record.digest for record in records(finished.folder, "tiny")}
    made = {path.stem for path in (finished.folder / "runs").iterdir()}
    assert kept == made
    assert len(made) == RUNS


@pytest.mark.slow
def test_records_that_are_nowhere_else_are_not_replaced(results, no_training):
    """As in a checkout, whose tables have records without files in runs/."""
    part = ["tiny", [f"results_dir={results}", "table.seeds=[0]"]]
    reproduce(*part)
    before = tables(results, "tiny-part")
    for path in (results / "runs").glob("*.json"):
        if parse_named(path.read_text(), path).config["seed"] == 0:
            path.unlink()
    with pytest.raises(UserError, match=r"tiny-part.records.jsonl has 5 records in no other file"):
        reproduce("tiny", [f"results_dir={results}", "table.seeds=[1]"])
    assert tables(results, "tiny-part") == before
    kept = results / "tables" / "tiny-part.records.jsonl"
    kept.write_text("{broken\n")
    with pytest.raises(UserError, match="has 1 record in no other file, which would be lost"):
        reproduce("tiny", [f"results_dir={results}", "table.seeds=[1]"])


@pytest.mark.slow
def test_runs_with_secret_noise_are_not_repeated_over_records_of_others(results):
    secret = ["noise=secure", "table.methods=[sgd,dpsgd]", f"results_dir={results}"]
    reproduce("tiny", secret)
    shutil.rmtree(results / "runs")
    with pytest.raises(UserError, match=r"has 6 records in no other file"):
        reproduce("tiny", secret)


def test_every_variant_has_its_row(finished):
    rows = [line.split(" | ")[0] for line in finished.text.splitlines() if line.startswith("| ")]
    assert {"| sgd", "| dpsgd", "| dpsgd (lr 0.1)", "| dpsgd_f", "| dpsgd_f (paper)"} <= set(rows)


def test_an_impossible_method_is_a_row_with_its_reason(finished):
    reason = "fairlens is defined for exactly 2 groups and digits has 10"
    assert f"| fairlens | not possible: {reason}" in finished.text
    assert "not possible" in verdicts(finished.folder, "tiny")


@pytest.mark.slow
def test_finished_runs_are_reused_and_give_the_same_bytes(finished, results, no_training):
    text = reproduce("tiny", [f"results_dir={results}"])
    assert text == finished.text
    assert tables(results) == tables(finished.folder)
    assert measured(results) == measured(finished.folder)


@pytest.mark.slow
def test_only_what_is_missing_or_broken_is_run(finished, results):
    gone, broken, *others = sorted((results / "runs").iterdir())
    gone.unlink()
    broken.write_bytes(broken.read_bytes()[:50])
    before = [path.stat().st_mtime_ns for path in others]
    with pytest.warns(
        UserWarning, match=f"the record {broken} is not JSON: .* the run is repeated"
    ):
        reproduce("tiny", [f"results_dir={results}"])
    assert [path.stat().st_mtime_ns for path in others] == before
    assert measured(results) == measured(finished.folder)
    assert tables(results) == tables(finished.folder)


@pytest.mark.slow
def test_again_runs_everything(results):
    before = {path: path.stat().st_mtime_ns for path in (results / "runs").iterdir()}
    reproduce("tiny", [f"results_dir={results}", "again=true", "table.methods=[sgd,dpsgd]"])
    changed = [path for path, time in before.items() if path.stat().st_mtime_ns > time]
    assert len(changed) == 6


def test_a_table_can_be_narrowed_to_methods_and_seeds(results, no_training):
    narrow = ["table.methods=[sgd,dpsgd]", "table.seeds=[1]"]
    text = reproduce("tiny", [f"results_dir={results}", *narrow])
    assert "fairlens" not in text
    assert "dpsgd_f" not in text
    kept = records(results, "tiny-part")
    assert {(r.config["choices"]["method"], r.config["seed"]) for r in kept} == {
        ("sgd", 1),
        ("dpsgd", 1),
    }


@pytest.mark.slow
def test_how_runs_are_carried_out_leaves_the_table_the_paper_s(finished, results, no_training):
    how = ["engine=vmap", "physical_batch_size=64", "data_dir=elsewhere", "threads=1"]
    assert reproduce("tiny", [f"results_dir={results}", *how]) == finished.text


@pytest.mark.slow
@pytest.mark.parametrize("change", ["optimizer.lr=0.3", "privacy.noise_multiplier=2.0"])
def test_changed_runs_never_take_the_paper_s_place(change, finished, results):
    reproduce("tiny", [f"results_dir={results}", "table.methods=[sgd,dpsgd]"])
    before = tables(results, "tiny-part")
    asked = [f"results_dir={results}", "table.methods=[sgd,dpsgd]", "table.seeds=[0]", change]
    text = reproduce("tiny", asked)
    assert tables(results, "tiny-part") == before
    assert text == tables(results, "tiny-changed")["md"].decode()
    assert text.startswith("# Digits: a toy (Table 1) (not at the paper's scale)\n")
    assert f"Scale: {change}." in text
    assert verdicts(results, "tiny-changed") == {"other scale", "-"}
    assert "differs" in verdicts(finished.folder, "tiny")


@pytest.mark.slow
def test_a_run_that_fails_is_reported_and_makes_no_table(checkout, tmp_path, monkeypatch):
    def fail(*_):
        raise UserError("no luck")

    monkeypatch.setattr("dpbench.execution.load_or_run.fit", fail)
    with pytest.raises(UserError, match="no luck"):
        reproduce("tiny", [f"results_dir={tmp_path}"])
    assert list((tmp_path / "tables").iterdir()) == []


@pytest.mark.slow
def test_a_diverged_run_is_named_under_the_table(results, no_training):
    for path in (results / "runs").iterdir():
        record = load(path)
        if (record.config["choices"]["method"], record.config["seed"]) == ("dpsgd", 1):
            dataclasses.replace(record, status="diverged").save(results)
    text = reproduce("tiny", [f"results_dir={results}"])
    assert "dpsgd diverged with seed 1: its means are NaN." in text
    assert "NaN" in text


def test_the_same_records_in_any_order_give_the_same_bytes(finished, checkout):
    kept = records(finished.folder, "tiny")
    wanted, fairlens = target_of("tiny", []), NotRun({"fairlens": "because"})
    assert render(wanted, kept, fairlens) == render(wanted, kept[::-1], fairlens)


@pytest.mark.slow
def test_a_figure_is_a_picture_its_points_and_a_page(checkout, tmp_path):
    """Figure 3 on digits: two groups of ten, one epoch."""
    (checkout / "conf" / "table" / "tiny_fig.yaml").write_text(
        (checkout / "conf" / "table" / "misalignment_fig3.yaml")
        .read_text()
        .replace("\ntable:\n", "\ntable:\n  methods: [dpsgd, dpsgd_global, dpsgd_global_adapt]\n")
    )
    small = ["dataset=digits", "model=logistic", "epochs=1", "table.seeds=[0]"]
    groups = ["table.groups=['0','1']", "diagnostics.groups=[0,1]"]
    text = reproduce("tiny_fig", [f"results_dir={tmp_path}", *small, *groups])
    made = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    name = "tiny_fig-changed"
    suffixes = ("md", "csv", "claims.csv", "json", "png", "svg", "pdf", "records.jsonl")
    assert set(made) == {f"{name}.{s}" for s in suffixes}
    assert made[f"{name}.png"].startswith(b"\x89PNG")
    assert made[f"{name}.csv"].startswith(b"panel,method,line,x,mean,deviation,low,high,runs\n")
    assert made[f"{name}.md"].decode() == text
    assert f"({name}.png)" in text
    assert "## Numbers" in text
    assert text.partition("\n")[0].endswith("(Figure 3), here with dataset=digits, one seed")
    assert "- 4 claims: 2 undecided, 2 not run.\n" in text
    assert f"\n\n{NOTE}" in text
    assert "private data without accounting" in text


@pytest.mark.long
def test_a_table_that_is_killed_ends_with_the_same_bytes(results, checkout, tmp_path):
    draw = random.Random(0)
    more = "table.seeds=[0,1,2]"  # so that none ends before it is killed
    text = reproduce("tiny", [f"results_dir={results}", more])
    killed = tmp_path / "killed"
    overrides = ["tiny", f"results_dir={killed}", more, "threads=1"]
    runs = killed / "runs"
    survivors = {}
    for stop_after in (1, 3):
        running = start(checkout, *overrides)
        while running.poll() is None and len(list(runs.glob("*.json"))) < stop_after:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.2))
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert running.returncode == -signal.SIGKILL, "ended before it was killed"
        assert not (killed / "tables" / "tiny-part.md").exists()
        whole = [path for path in runs.glob("*.json") if load(path)]
        assert whole == list(runs.glob("*.json")), "a record that is not whole"
        survivors |= {path: path.stat().st_mtime_ns for path in whole if path not in survivors}
    out, err = (last := start(checkout, *overrides)).communicate()
    assert (last.returncode, err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in survivors} == survivors
    assert 0 < len(survivors) < 2 * RUNS
    assert tables(killed, "tiny-part") == tables(results, "tiny-part")
    assert measured(killed) == measured(results)
    assert out == text + "\n"


@pytest.mark.long
def test_two_processes_make_the_same_bytes_as_one(finished, checkout, tmp_path):
    out, err = (both := start(checkout, "tiny", f"results_dir={tmp_path}", "jobs=2")).communicate()
    assert (both.returncode, err) == (0, "")
    assert out == finished.text + "\n"
    assert tables(tmp_path) == tables(finished.folder)
    assert measured(tmp_path) == measured(finished.folder)
    assert {record.provenance["threads"] for record in records(tmp_path, "tiny")} == {1}


@pytest.mark.long
def test_a_failure_in_another_process_is_one_sentence(checkout, tmp_path):
    overrides = [f"results_dir={tmp_path}", "jobs=2", "device=nonsense"]
    out, err = (both := start(checkout, "tiny", *overrides)).communicate()
    assert (both.returncode, out) == (2, "")
    assert err == "dpbench: device=nonsense is not available here; try device=auto.\n"
