"""Three people's ways through the suite, none of whom changes a line of it.

A student has a clip of her own and sweeps it; a reviewer reruns one table; an engineer has a CSV
file and a model in a package of his own. All work outside the checkout.
"""

import base64
import gzip
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpbench.runs.records.code import CHECKSUM_KEY, PLUGIN_PARTS_KEY
from dpbench.runs.records.reading import load
from tests.cli.conftest import command
from tests.plugin_files import write

__all__ = ["command"]

ROOT = Path(__file__).parents[1]

TABLE = """# @package _global_
# Source: ours.
defaults:
  - override /model: net

table:
  title: "A softened clip"
  paper: "Nobody's, 2026"
  published: clips/table1.csv
  published_runs: 2
  epsilon: null
  baseline: sgd
  methods: [sgd, dpsgd, softened]
  seeds: [0, 1]
  groups: []
  spread: standard error
  columns:
    accuracy: {metric: test/accuracy}
  claims:
    cost: {statement: "Privacy costs.", source: us, better: [sgd], than: [softened], in: [accuracy]}
  notes: []
  settings:
    - set: {epochs: 2, batch_size: 128, optimizer: {lr: 0.5}}
"""
INSTALLED = {
    "clips-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: clips\nVersion: 1.0\n",
    "clips-1.0.dist-info/entry_points.txt": "[dpbench.plugins]\nclips = clips\n",
}

PRINTED = "method,column,value,spread\nsoftened,accuracy,199.9,0.1\n"


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The folder that somebody works in."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def people(path: Path) -> Path:
    """A CSV file of 300 people, whose income follows from their age and town."""
    rows = [
        (20 + 7 * n % 50, ("Bonn", "Rome", "York")[n % 3], "fm"[n // 2 % 2]) for n in range(300)
    ]
    lines = [f"{age},{town},{sex},{'high' if age > 44 else 'low'}" for age, town, sex in rows]
    path.write_text("\n".join(["age,town,sex,income", *lines]) + "\n")
    return path


def page_data(path: Path) -> str:
    """What the report compares, as text."""
    (packed,) = re.findall(r'<script [^>]*id="data"[^>]*>(.*?)</script>', path.read_text())
    return gzip.decompress(base64.b64decode(packed)).decode()


def ran(done) -> list:
    """The records that a command printed."""
    assert done.code == 0, done.err
    return [load(Path(line)) for line in done.out if line.startswith("results/runs/")]


@pytest.mark.slow
def test_a_student_sweeps_a_clip_of_her_own(plugin, work, command):
    sweep = ["run", "-m", "method=dpsgd,softened", "privacy=noise1,noise08", "seed=0,1"]
    small = ["model=net", "epochs=2", "batch_size=256"]
    records = ran(command(*sweep, *small))
    assert len({record.digest for record in records}) == 8

    # It resumes: only what is missing is made.
    paths = sorted((work / "results" / "runs").iterdir())
    times = {path: path.stat().st_mtime_ns for path in paths}
    lost = paths[3]
    before = json.loads(lost.read_text())
    lost.unlink()
    assert len(ran(command(*sweep, *small))) == 8
    assert [path for path in paths if path.stat().st_mtime_ns != times[path]] == [lost]
    assert json.loads(lost.read_text())["metrics"] == before["metrics"]

    # It is in a table and on the page, each with a command that makes it.
    made = command("table", "results", "columns=privacy", "metrics=accuracy,ece")
    assert made.code == 0
    assert any(line.startswith("| Softened clip |") for line in made.out)
    assert {path.suffix for path in work.glob("table.*")} == {".md", ".csv", ".tex"}
    assert command("report", "results_dir=results").out == ["report.html"]
    page = page_data(work / "report.html")
    assert "dpbench run dataset=digits model=net method=softened" in page

    # A changed clip makes the records of its package stale, and no others.
    ours = ["method=dpsgd", "model=mlp", "epochs=2", "batch_size=256"]
    command("run", *ours)
    clip = plugin / "clipworks" / "clip.py"
    clip.write_text(clip.read_text().replace("norms + self.constant", "norms + 2 * self.constant"))
    assert any("different version" in e for e in command("run", "method=softened", *small).err)
    assert not any("different version" in line for line in command("run", *ours).err)


@pytest.mark.slow
@pytest.mark.parametrize("study", ["clipworks/benchmarks/clips", "clips"])
def test_a_reviewer_reruns_one_table_and_finds_every_number_in_it(study, plugin, work, command):
    """Of a study in a package of other things, and of one that is a package."""
    write(plugin / study, {"table/clips_table1.yaml": TABLE, "table1.csv": PRINTED})
    if study == "clips":
        write(plugin, {"clips/__init__.py": '"""Clips."""\n', **INSTALLED})
    assert "table=clips_table1" in command("list", "table").out
    done = command("reproduce", "clips_table1")
    assert done.code == 0, done.err
    page = "\n".join(done.out)
    assert "| softened | accuracy |" in page
    assert "| differs |" in page
    assert "Privacy costs." in page
    files = work / "results" / "tables"
    assert {path.name for path in files.iterdir()} == {
        f"clips_table1.{suffix}"
        for suffix in ("md", "csv", "tex", "json", "claims.csv", "records.jsonl")
    }
    verified = command("verify", "clips_table1")
    assert [line for line in verified.out[:-1] if "uncommitted" not in line] == []
    assert command("report", "results_dir=results").code == 0
    assert "A softened clip" in page_data(work / "report.html")


@pytest.mark.slow
def test_an_engineer_trains_a_model_of_his_own_on_a_file_of_his_own(plugin, work, command):
    data = [f"dataset.file={people(work / 'people.csv')}", "dataset.target=income"]
    asked = ["dataset=csv", *data, "dataset.group=sex", "model._target_=clipworks.Net"]
    asked += ["+model.width=6", "epochs=3", "batch_size=64", "method=dpsgd,softened", "jobs=2"]
    records = ran(command("run", "-m", *asked))
    assert [record.config["choices"]["dataset"] for record in records] == ["csv:people"] * 2
    assert {record.config["choices"]["model"] for record in records} == {"clipworks.Net"}
    for record in records:
        assert record.provenance[PLUGIN_PARTS_KEY]["model"]["version"] == "1.2"
        assert record.provenance[CHECKSUM_KEY]
        assert 0.5 < record.metrics["test/accuracy/f"] <= 1
    made = "\n".join(command("table", "results", "metrics=accuracy,accuracy/m").out)
    assert "csv:people, clipworks.Net" in made
    command("report", "results_dir=results")
    page = page_data(work / "report.html")
    assert "model._target_=clipworks.Net" in page
    assert str(work) not in page


@pytest.mark.long
def test_a_run_of_a_package_resumes_where_it_was_killed(plugin, work, command, monkeypatch):
    """In processes of their own: nothing of the package has been imported before."""
    asked = ["dataset=csv", f"dataset.file={people(work / 'people.csv')}", "dataset.target=income"]
    asked += ["model=net", "method=softened", "epochs=30", "batch_size=10"]
    run = [sys.executable, "-m", "dpbench", "run", *asked, "checkpoint_minutes=1e-4"]
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{plugin}")
    process = subprocess.Popen([*run, "results_dir=killed"], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not [*work.glob("killed/checkpoints/*/*.ckpt")] and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [*work.glob("killed/checkpoints/*/*")]
    assert not [*work.glob("killed/runs/*.json")]
    resumed = load(Path(subprocess.check_output([*run, "results_dir=killed"], text=True).strip()))
    whole = load(Path(command("run", *asked, "results_dir=whole").out[0]))
    assert (resumed.provenance["resumed"], whole.provenance["resumed"]) == (1, 0)
    assert resumed.metrics == whole.metrics
    assert resumed.privacy == whole.privacy
