"""A table from start to end: a small one on digits, made in a copy of the checkout."""

import dataclasses
import random
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpbench.comparison.reproduce.command import reproduce
from dpbench.comparison.reproduce.render import render
from dpbench.comparison.reproduce.target import target_of
from dpbench.comparison.tables.privacy import NotRun
from dpbench.runs.records.reading import load, read
from dpbench.system import paths as resources
from dpbench.system.errors import UserError
from tests.comparison.reproduce.toy_table import (
    COLUMNS,
    NOTE,
    PUBLISHED,
    RUNS,
    TINY,
    files_of,
    measured,
    records,
    rewrite,
    start,
    tables,
    verdicts,
)

ROOT = Path(__file__).resolve().parents[3]


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
    (root / "conf" / "table" / "tiny_fig.yaml").write_text(
        (root / "benchmarks" / "misalignment" / "table" / "misalignment_fig3.yaml")
        .read_text()
        .replace("\ntable:\n", "\ntable:\n  methods: [dpsgd, dpsgd_global, dpsgd_global_adapt]\n")
    )
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
        if read(path).config["seed"] == 0:
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
        reproduce("tiny", [*secret, "again=true"])


@pytest.fixture
def clone(finished, tmp_path):
    """A results folder with the tables alone, as a clone of the repository has."""
    shutil.copytree(finished.folder / "tables", tmp_path / "tables")
    return tmp_path


def test_the_records_of_a_table_are_those_of_its_runs(finished, clone, no_training, capsys):
    assert reproduce("tiny", [f"results_dir={clone}"]) == finished.text
    assert files_of(clone / "tables") == files_of(finished.folder / "tables")
    assert not (clone / "runs").exists()
    outlook = f"tiny: {RUNS} of {RUNS} runs are there ({RUNS} in {clone / 'tables'}); nothing to"
    assert outlook in capsys.readouterr().err
    paper = reproduce("tiny", [f"results_dir={clone}", "layout=paper", "columns=acc"])
    assert "accuracy" in paper


def test_records_are_taken_from_the_file_of_another_table(clone, no_training, capsys):
    for seed in (0, 1):  # so that the first part is overwritten, whose records tiny has
        reproduce("tiny", [f"results_dir={clone}", f"table.seeds=[{seed}]"])
        assert {record.config["seed"] for record in records(clone, "tiny-part")} == {seed}
    assert "tiny-part: 5 of 5 runs are there (5 in" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_missing_is_announced_with_its_cost_and_trained(clone, no_training, capsys):
    file = clone / "tables" / "tiny.records.jsonl"
    slow = {"sgd": 7200.0, "dpsgd": 600.0}
    rewrite(
        file,
        lambda r: dataclasses.replace(
            r, provenance=r.provenance | {"seconds": slow.get(r.config["choices"]["method"])}
        ).json(),
    )
    more = [f"results_dir={clone}", "table.methods=[sgd,dpsgd]", "table.seeds=[0,1,2]"]
    with pytest.raises(UserError):
        reproduce("tiny", more)
    assert (
        f"tiny-part: 6 of 9 runs are there (6 in {clone / 'tables'}); 3 to train, about 2 h one "
        "after another (by the seconds of those that are there).\n"
    ) in capsys.readouterr().err
    with pytest.raises(UserError):
        reproduce("tiny", [*more, "epochs=2"])
    assert "tiny-changed: 0 of 9 runs are there; 9 to train.\n" in capsys.readouterr().err


@pytest.mark.slow
def test_again_means_for_records_of_tables_what_it_means_for_runs(finished, clone, capsys):
    def older(record):
        changed = {"reached": "0" * 12} if record.config["choices"]["method"] == "sgd" else {}
        return dataclasses.replace(record, provenance=record.provenance | changed).json()

    rewrite(clone / "tables" / "tiny.records.jsonl", older)
    reproduce("tiny", [f"results_dir={clone}"])
    assert f"2 of {RUNS} records were produced by a different version" in capsys.readouterr().err
    assert not (clone / "runs").exists()
    reproduce("tiny", [f"results_dir={clone}", "again=stale"])
    said = capsys.readouterr().err
    assert "; 2 to train, about" in said
    assert "different version" not in said
    assert len([*(clone / "runs").iterdir()]) == 2
    assert tables(clone) == tables(finished.folder)
    narrow = ["table.methods=[sgd,dpsgd_f]", "table.seeds=[0]"]
    reproduce("tiny", [f"results_dir={clone}", "again=true", *narrow])
    assert len([*(clone / "runs").iterdir()]) == 4


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["half", "forged"])
def test_a_damaged_record_of_another_table_is_not_taken(damage, clone, capsys):
    def damaged(record):
        text = record.json()
        return text[: len(text) // 2] if damage == "half" else text.replace("0.", "0.1", 1)

    rewrite(clone / "tables" / "tiny.records.jsonl", damaged)
    one = ["table.methods=[sgd]", "table.seeds=[0]"]
    reproduce("tiny", [f"results_dir={clone}", *one])
    assert "tiny-part: 0 of 1 run are there; 1 to train.\n" in capsys.readouterr().err


def test_committed_records_that_another_folder_leaves_out_are_named(
    clone, no_training, capsys, monkeypatch, tmp_path
):
    results = tmp_path / "checkout" / "results"
    shutil.copytree(clone / "tables", results / "tables")
    package = "dpbench.comparison.reproduce.command.PACKAGE"
    monkeypatch.setattr(package, tmp_path / "checkout" / "dpbench")
    one = ["table.methods=[sgd]", "table.seeds=[0]"]
    for more, said in (([], True), (["again=true"], False), (["epochs=2"], False)):
        with pytest.raises(UserError):
            reproduce("tiny", [f"results_dir={tmp_path / 'other'}", *one, *more])
        told = f"; {results / 'tables'} has 1 of them, which results_dir={results} takes.\n"
        assert (told in capsys.readouterr().err) == said


def test_every_variant_has_its_row_and_an_impossible_method_its_reason(finished):
    rows = [line.split(" | ")[0] for line in finished.text.splitlines() if line.startswith("| ")]
    assert {"| sgd", "| dpsgd", "| dpsgd (lr 0.1)", "| dpsgd_f", "| dpsgd_f (paper)"} <= set(rows)
    reason = "fairlens is defined for exactly 2 groups and digits has 10"
    assert f"| fairlens | not possible: {reason}" in finished.text
    assert "not possible" in verdicts(finished.folder, "tiny")


@pytest.mark.slow
def test_finished_runs_are_reused_and_give_the_same_bytes(finished, results, no_training):
    assert reproduce("tiny", [f"results_dir={results}"]) == finished.text
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
    assert last.returncode == 0, err
    assert f"tiny-part: {len(survivors)} of " in err
    assert {path: path.stat().st_mtime_ns for path in survivors} == survivors
    assert 0 < len(survivors) < 2 * RUNS
    assert tables(killed, "tiny-part") == tables(results, "tiny-part")
    assert measured(killed) == measured(results)
    assert out == text


@pytest.mark.long
def test_two_processes_make_the_same_bytes_as_one(finished, checkout, tmp_path):
    out, err = (both := start(checkout, "tiny", f"results_dir={tmp_path}", "jobs=2")).communicate()
    assert both.returncode == 0, err
    assert f"tiny: 0 of {RUNS} runs are there; {RUNS} to train.\n" in err
    assert out == finished.text
    assert tables(tmp_path) == tables(finished.folder)
    assert measured(tmp_path) == measured(finished.folder)
    assert {record.provenance["threads"] for record in records(tmp_path, "tiny")} == {1}


@pytest.mark.long
def test_a_failure_in_another_process_is_one_sentence(checkout, tmp_path):
    overrides = [f"results_dir={tmp_path}", "jobs=2", "device=nonsense"]
    out, err = (both := start(checkout, "tiny", *overrides)).communicate()
    assert (both.returncode, out) == (2, "")
    assert err == "dpbench: device=nonsense is not available here; try device=auto.\n"
