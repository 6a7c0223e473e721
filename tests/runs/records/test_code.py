"""The code that a record was made by: what counts, what does not, and what is then said."""

import re
import shutil
from pathlib import Path

import pytest

from dpbench.cli.main import main
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records import code
from dpbench.runs.records.code import CHECKSUM_KEY, STALE_RECORD, code_of, is_stale
from dpbench.runs.records.reading import read
from dpbench.system.paths import PACKAGE

SMALL = ["epochs=1", "model=logistic", "batch_size=512"]


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the library whose files the checksums are of."""
    folder = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "PACKAGE", folder)
    return folder


@pytest.mark.parametrize(
    ("file", "matters"),
    [
        ("step/methods/bam.py", True),
        ("learning/models/logistic.py", True),
        ("learning/data/digits.py", True),
        ("step/clipping/functions.py", True),
        ("step/mechanism/noise.py", True),
        ("step/gradients/layers/convolution.py", True),
        ("privacy/composition.py", True),
        ("step/methods/fairlens.py", False),
        ("learning/models/resnet9.py", False),
        ("learning/data/adult.py", False),
        ("learning/metrics/evaluation.py", True),
        ("learning/metrics/builtin/regression.py", False),
        ("comparison/dashboard/board_view.py", False),
        ("cli/main.py", False),
        ("runs/execution/slurm.py", False),
    ],
)
def test_only_code_that_may_matter_to_a_run_affects_its_hash(file, matters, copy):
    config = compose(["method=bam", "model=logistic"])
    before = code_of(config)
    path = copy / file
    path.write_text(path.read_text() + "\nCHANGED = True\n")
    assert (code_of(config) != before) == matters


@pytest.mark.slow
def test_a_method_that_another_is_made_of_counts(copy):
    config = compose(["method=dpsgd_global"])
    before = code_of(config)
    path = copy / "step" / "methods" / "dpsgd.py"
    path.write_text(path.read_text() + "\nCHANGED = True\n")
    assert code_of(config) != before


def test_a_metric_counts_for_the_runs_that_have_it(copy):
    config, file = compose([]), copy / "learning" / "metrics" / "builtin" / "calibration.py"
    names = (["test/accuracy", "test/ece"], ["test/accuracy"])
    before = [code_of(config, measured) for measured in names]
    file.write_text(file.read_text() + "\nCHANGED = True\n")
    (file.parent / "sharpness.py").write_text("SHARPNESS = 1\n")
    after = [code_of(config, measured) for measured in names]
    assert (after[0] != before[0], after[1] == before[1]) == (True, True)


def test_the_rooms_are_all_that_training_imports():
    """Beside what only checks, names, stores or draws a run."""
    reached = set()
    for room in code.ROOMS:
        for path in (PACKAGE / room).rglob("*.py"):
            reached |= {*re.findall(r"from dpbench\.(\w+)(?:\.(\w+))?[. ]", path.read_text())}
    others = {room for room in reached if not {room[0], "/".join(room)} & {*code.ROOMS}}
    beside = {("runs", room) for room in ("config", "figures", "records")}
    assert {room for room in others if room[0] != "system"} == beside


@pytest.mark.slow
def test_how_a_run_is_executed_does_not_count():
    assert code_of(compose(["launcher=slurm", "jobs=2"])) == code_of(compose([]))
    assert code_of(compose(["method=bam"])) != code_of(compose([]))


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the same command, and returns what it says."""

    def said(*more):
        command = ["dpbench", "run", *SMALL, f"results_dir={tmp_path}", *more]
        monkeypatch.setattr("sys.argv", command)
        main()
        return capsys.readouterr().err

    return said


@pytest.mark.slow
def test_a_stale_record_is_said_to_be_and_repeated_on_request(run, tmp_path, monkeypatch):
    assert STALE_RECORD not in run() + run("again=stale")
    (path,) = (tmp_path / "runs").glob("*.json")
    made = path.stat().st_mtime_ns
    run("again=stale")
    assert path.stat().st_mtime_ns == made
    monkeypatch.setattr("dpbench.records.code.code_of", lambda *_: "other")
    monkeypatch.setattr("dpbench.training.trainer.imported_code_of", lambda *_: "other")
    assert "produced by a different version of the code; rerun it with again=stale" in run()
    assert path.stat().st_mtime_ns == made
    assert STALE_RECORD not in run("again=stale")
    assert read(path).provenance[CHECKSUM_KEY] == "other"


def test_older_records_do_not_say():
    published = Path(PACKAGE).parent / "results" / "tables" / "bam_table1-cpu_hour.records.jsonl"
    from dpbench.runs.records.reading import parse

    record = parse(published.read_text().splitlines()[0], "line")
    assert CHECKSUM_KEY not in record.provenance
    assert not is_stale(record)


@pytest.mark.slow
def test_reproduce_says_how_many(tmp_path, monkeypatch, capsys):
    changes = ["table.seeds=[0]", "table.methods=[sgd]", "epochs=1"]
    command = ["reproduce", "demo", *changes, f"results_dir={tmp_path}"]
    monkeypatch.setattr("sys.argv", ["dpbench", *command])
    main()
    assert "other code" not in capsys.readouterr().err
    monkeypatch.setattr("dpbench.records.code.code_of", lambda *_: "other")
    main()
    assert "1 of 1 records were produced by a different version" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["run", "-m", *SMALL, "seed=0,1"],
        ["search", *SMALL, "optimizer.lr=0.1,0.2", "N=2", "extend=0", "name=of_old"],
    ],
)
def test_a_sweep_and_a_search_say_how_many(tmp_path, monkeypatch, capsys, command):
    monkeypatch.setattr("sys.argv", ["dpbench", *command, f"results_dir={tmp_path}"])
    main()
    assert "different version" not in capsys.readouterr().err
    monkeypatch.setattr("dpbench.records.code.code_of", lambda *_: "other")
    main()
    assert "2 of 2 records were produced by a different version" in capsys.readouterr().err


def test_a_run_by_hand_has_no_checksum(tmp_path):
    assert (
        CHECKSUM_KEY
        in read(load_or_run(run_config([*SMALL, f"results_dir={tmp_path}"]))).provenance
    )
