"""dpbench run: its records, made once, and sweeps."""

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

import dpbench
from dpbench.runs.records.record import SCHEMA
from tests.cli.processes import ROOT, process
from tests.plugin_files import NET, write

SMALL = ["epochs=2", "model=logistic", "batch_size=128", "threads=1"]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run in a process of its own: what it printed, and its results folder."""
    folder = tmp_path_factory.mktemp("results")
    return process("run", *SMALL, f"results_dir={folder}"), folder


@pytest.mark.slow
def test_a_run_prints_its_path_and_a_summary(first):
    done, folder = first
    (line,) = done.err
    assert line.startswith("dpbench: test accuracy ")
    assert done.code == 0
    (path,) = (folder / "runs").iterdir()
    assert done.out == [str(path)]


def test_a_record_has_the_fields_that_other_tools_read(first):
    done, _ = first
    record = json.loads(Path(done.out[-1]).read_text())
    assert record["schema"] == SCHEMA
    assert record["status"] == "complete"
    assert record["config"]["epochs"] == 2
    assert record["config"]["choices"]["model"] == "logistic"
    assert len(record["history"]["train/loss"]) == 2
    metrics, privacy, provenance = (record[k] for k in ("metrics", "privacy", "provenance"))
    wanted = ["accuracy", "loss", "ece", "mce", *(f"accuracy/{digit}" for digit in range(10))]
    assert all(math.isfinite(metrics[f"test/{name}"]) for name in wanted)
    assert 0.1 < metrics["test/accuracy"] <= 1
    assert all(isinstance(value, float) for value in metrics.values())
    assert (privacy["steps"], privacy["sample_rate"]) == (2 * 12, 1 / 12)
    assert 0 < privacy["pld"] < privacy["rdp"] < math.inf
    assert provenance["torch"] == version("torch")
    assert provenance["dpbench"] == dpbench.__version__
    assert provenance["engine"] == "ghost"
    assert provenance["threads"] == 1
    assert provenance["device"]
    assert provenance["seconds"] > 0
    assert provenance["peak_memory_mib"] > 10
    assert "commit" in provenance


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_a_record_names_the_commit(first):
    done, _ = first
    commit = json.loads(Path(done.out[-1]).read_text())["provenance"]["commit"]
    assert re.fullmatch(r"[0-9a-f]{12}\+?", commit)


@pytest.mark.slow
def test_a_run_is_executed_once_unless_repetition_is_requested(first, command):
    done, folder = first
    path = Path(done.out[-1])
    content, changed = path.read_bytes(), path.stat().st_mtime_ns
    overrides = [*SMALL, f"results_dir={folder}"]

    assert command("run", *overrides, "engine=vmap").out == [str(path)]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, changed)

    assert command("run", *overrides, "engine=vmap", "again=true").out == [str(path)]
    assert path.stat().st_mtime_ns > changed
    assert json.loads(path.read_text())["provenance"]["engine"] == "vmap"


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["csv", "[csv,tensorboard]"])
def test_a_finished_run_says_how_to_log_it(tracker, first, command):
    folder = first[1]
    done = command("run", *SMALL, f"results_dir={folder}", f"tracker={tracker}")
    assert not (folder / "tracking").exists()
    how = shlex.join(["dpbench", "track", f"tracker={tracker}", f"results_dir={folder}"])
    assert done.err[1].startswith(f"dpbench: tracker={tracker} logs a run while it trains")
    assert done.err[1].endswith(f": {how} logs the finished records.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("device=nonsense", "device=nonsense is not available here; try device=auto."),
        ("device=null", "device=None is not available here; try device=auto."),
        ("engine.name=gost", "engine=gost is unknown: did you mean ghost?"),
        (
            "physical_batch_size=0",
            "physical_batch_size must be a whole number of at least 1, got 0.",
        ),
        ("channels_last=3", "channels_last must be true or false, got 3."),
        ("+launcher.x=1", "launcher.x is not a setting: there are none."),
    ],
)
def test_bad_settings_of_execution_are_refused_for_finished_runs(word, sentence, first, command):
    done = command("run", *SMALL, f"results_dir={first[1]}", word)
    assert (done.code, done.out, done.err) == (2, [], [f"dpbench: {sentence}"])


WITHOUT_LIBRARIES = """
import sys
from dpbench.cli.main import main
# To import one of these is an error: they take up to seconds, and are not needed to answer.
sys.modules |= dict.fromkeys(["torch", "numpy", "rich", "filelock", "urllib.request"])
sys.argv = ["dpbench", *sys.argv[1:]]
main()
"""


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 0),
        *(
            ((word,), 2)
            for word in ("nonsense=1", "method=nonsense", "jobs=0", "epochs=x", "device=x")
        ),
    ],
)
def test_a_finished_run_and_a_refusal_import_nothing_slow(words, code, first):
    made, folder = first
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARIES, "run", *SMALL, f"results_dir={folder}", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert (done.stdout or done.stderr).count("\n") == 1
    assert done.stdout in ("", f"{made.out[-1]}\n")


@pytest.mark.slow
def test_a_broken_record_is_replaced(command, tmp_path):
    overrides = ["epochs=1", "model=logistic", f"results_dir={tmp_path}"]
    path = Path(command("run", *overrides).out[-1])
    record = json.loads(path.read_text())
    path.write_bytes(path.read_bytes()[:-100])
    command("run", *overrides)
    again = json.loads(path.read_text())
    assert (again["metrics"], again["privacy"]) == (record["metrics"], record["privacy"])


@pytest.mark.slow
def test_a_sweep_makes_one_record_each(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command("run", "-m", "seed=0,1", "epochs=1", "model=logistic", f"results_dir={tmp_path}")
    assert done.code == 0
    assert re.fullmatch(
        rf"dpbench: a table of this sweep: dpbench table {tmp_path} sweep=run-\w+ rows=method",
        *done.err,
    )
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs").iterdir()]
    assert sorted(record["config"]["seed"] for record in records) == [0, 1]
    assert {line for line in done.out if line.endswith(".json")} == {
        str(path) for path in (tmp_path / "runs").iterdir()
    }
    # Hydra would otherwise leave a file or a folder of its own where the command was given.
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "sweeps"}


@pytest.mark.slow
def test_the_command_after_a_sweep_makes_a_table_of_its_runs_alone(command, tmp_path):
    settings = ["run", "-m", "model=logistic", f"results_dir={tmp_path}"]
    first = command(*settings, "epochs=1", "method=dpsgd,sgd")
    second = command(*settings, "epochs=2", "optimizer.lr=0.1,0.2")
    for done, rows in ((first, ["dpsgd", "sgd"]), (second, [0.1, 0.2])):
        made = command(*done.err[-1].partition(": dpbench ")[2].split(), f"out={tmp_path}/table")
        assert made.code == 0
        assert pd.read_csv(tmp_path / "table.csv").iloc[:, 0].tolist() == rows
    unknown = command("table", tmp_path, "sweep=run-1", f"out={tmp_path}/table")
    assert unknown.code == 2
    assert re.search(r"has no sweep run-1: .*run-\w+", unknown.err[0])
    shutil.rmtree(tmp_path / "runs")
    command("run", "model=logistic", "epochs=3", f"results_dir={tmp_path}")
    none = command(*second.err[-1].partition(": dpbench ")[2].split(), f"out={tmp_path}/table")
    assert none.code == 2
    assert re.search(r"none of the 2 runs of sweep run-\w+ has a record", none.err[0])


SLOW_IMPORTS = """
import sys
from dpbench.cli.main import main
sys.argv = ["dpbench", *sys.argv[1:]]
main()
print(*{"torch._dynamo", "sympy", "sklearn", "pandas", "scipy.stats"} & {*sys.modules})
"""


@pytest.mark.slow
def test_a_run_imports_nothing_that_takes_longer_than_itself(tmp_path):
    words = ("run", "epochs=1", f"results_dir={tmp_path}")
    made = subprocess.run(
        [sys.executable, "-c", SLOW_IMPORTS, *words], capture_output=True, text=True, check=True
    )
    path, loaded = made.stdout.splitlines()
    assert Path(path).exists()
    assert loaded == ""


@pytest.mark.slow
def test_a_search_with_a_failed_run_ends_with_exit_code_1_after_its_report(command, tmp_path):
    asked = ["search", "epochs=1", "model=logistic", "name=some", f"results_dir={tmp_path}"]
    done = command(*asked, "batch_size=512,5000")
    assert done.code == 1
    assert done.err == ["dpbench: 1 of 2 runs failed, for the reasons in the table."]
    assert "\n".join([*done.out, ""]) == (tmp_path / "search" / "some.md").read_text()
    assert command(*asked, "batch_size=256,512").code == 0


@pytest.mark.slow
def test_a_sweep_over_mappings_suggests_a_table_that_can_be_made(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{n},{n % 7},{'C, d' if n % 3 else 'e'},{n % 2}\n" for n in range(60))
    Path("own.csv").write_text("a,'b c',g,3\n" + re.sub("C, d", '"C, d"', rows))
    fixed = ["dataset=csv", "dataset.file=own.csv", "dataset.target=3", "dataset.group=g"]
    fixed += ["model=logistic", "epochs=1", "batch_size=16", "method=sgd", "dataset.drop=[a]"]
    mappings = r"""{"'b c'":[3,2]},{"'b c'":[0,1]}"""
    done = command("run", "-m", *fixed, f"dataset.standardise=train,none,{mappings}")
    words = shlex.split(done.err[-1].partition(": dpbench ")[2])
    made = command(*words, "metrics=accuracy,accuracy/C, d", "out=t")
    assert made.code == 0
    assert len([line for line in made.out if line.startswith("| ")]) == 2 + 4
    one = command("table", "results", r"""dataset.standardise={'\'b c\'':[3,2]}""", "out=t")
    assert one.code == 0
    (tmp_path / "results" / "sweeps").rename(tmp_path / "gone")
    (tmp_path / "results" / "sweeps").write_text("a file in the way, as in a folder of others")
    again = command("run", "-m", *fixed, f"dataset.standardise=train,none,{mappings}")
    assert (again.code, again.out) == (0, done.out)
    assert "table of this sweep" not in "".join(again.err)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["-m"]], ids=["run", "sweep"])
def test_what_a_model_prints_is_no_output(command, plugin, tmp_path, flags):
    talking = NET.replace("        layers =", "        print('hello')\n        layers =")
    write(plugin, {"clipworks/net.py": talking})
    settings = ["model=net", "epochs=1", "method=sgd", f"results_dir={tmp_path / 'results'}"]
    done = command("run", *flags, *settings)
    (path,) = (tmp_path / "results" / "runs").iterdir()
    assert (done.code, done.out[0]) == (0, str(path))
    assert "hello" in done.err
    assert "hello" not in done.out
