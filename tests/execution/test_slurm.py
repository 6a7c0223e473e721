"""The way to a cluster: through submitit's own stand-in for one, and through a false sbatch."""

import sys
from pathlib import Path

import pytest

from dpbench.config.compose import compose
from dpbench.config.search_path import as_overrides
from dpbench.execution import sweep as sweeps
from dpbench.execution.run_config import RunConfig, run_config
from dpbench.execution.slurm import Slurm, SlurmTask
from dpbench.records.reading import load
from dpbench.system.errors import UserError
from tests.plugin_files import BROKEN_NET, write

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("submitit", reason="the cluster extra brings it")

SMALL = ["epochs=1", "model=logistic", "batch_size=512", "method=sgd", "launcher=slurm"]


@pytest.mark.slow
def test_a_sweep_through_submitit_makes_its_records_and_lists_what_failed(
    plugin, tmp_path, monkeypatch
):
    write(plugin, {"clipworks/net.py": BROKEN_NET})
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{plugin}")
    fixed = [*SMALL, "launcher.cluster=local", f"results_dir={tmp_path / 'results'}"]
    fails = [*fixed, "seed=2", "model=net"]
    heard = []
    sweep = sweeps.plan_sweep("some", [[*fixed, "seed=0"], [*fixed, "seed=1"], fails])
    said = sweeps.run_and_report(sweep, heard.append)
    assert sorted(load(path).config["seed"] for path in heard) == [0, 1]
    assert "1 of 3 runs failed" in said
    assert "seed=2 model=net: RuntimeError: out of layers" in said


def test_a_task_out_of_time_hands_in_the_same_again():
    run = RunConfig(("seed=3",), {})
    again = SlurmTask().checkpoint(run, True)
    assert isinstance(again.function, SlurmTask)
    assert (again.args, again.kwargs) == ((run, True), {})


@pytest.fixture
def false_slurm(tmp_path, monkeypatch):
    """Commands by the names of Slurm's, of which sbatch keeps the script; the folder."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    scripts = {
        "sbatch": f"cp $1 {tmp_path}/script; echo Submitted batch job 12",
        "srun": "true",
        "sacct": "echo 'JobID|State'; echo '12_0|FAILED'; echo '12_1|FAILED'",
        "scancel": f"echo $@ >>{tmp_path}/cancelled",
    }
    for name, body in scripts.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:/usr/bin:/bin")
    return tmp_path


@pytest.mark.long
def test_the_array_job_asks_for_what_the_settings_say(false_slurm, tmp_path):
    place = Slurm("slurm", "short", minutes=90, gpus=1, cpus=3, memory_gb=7, at_once=2, requeues=2)
    with place.start(1, tmp_path / "launched") as attempts:
        outcomes = dict(attempts([run_config([f"seed={seed}"]) for seed in (0, 1)], False))
    assert len(outcomes) == 2
    assert all("of the cluster failed" in outcome.reason for outcome in outcomes.values())
    script = (tmp_path / "script").read_text()
    for line in (
        "--partition=short",
        "--time=90",
        "--gpus-per-node=1",
        "--cpus-per-task=3",
        "--mem=7GB",
        "--array=0-1%2",
        "--signal=",
    ):
        assert f"#SBATCH {line}" in script
    assert sys.executable in script


def test_the_script_has_what_a_cluster_wants(false_slurm, tmp_path, monkeypatch):
    monkeypatch.setattr("dpbench.execution.slurm._outcomes", lambda tasks: iter(()))
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(sbatch.read_text().replace("job 12", "job 56"))
    asked = [
        *("launcher=slurm", "launcher.account=ml", "launcher.qos=high", "+table=demo"),
        *("launcher.constraint='a100|h100'", "launcher.setup=[module load cuda,'echo $HOME; ls']"),
        "launcher.parameters={reservation:ours,exclude:'node[3-7]',exclusive:true}",
    ]
    with run_config(asked).launcher.start(1, tmp_path / "launched") as attempts:
        list(attempts([run_config(["seed=0"])], False))
    lines = (tmp_path / "script").read_text().splitlines()
    for line in (
        "#SBATCH --account=ml",
        "#SBATCH --qos=high",
        "#SBATCH --constraint='a100|h100'",
        "#SBATCH --reservation=ours",
        "#SBATCH --exclude='node[3-7]'",
        "#SBATCH --exclusive",
        "module load cuda",
        "echo $HOME; ls",
    ):
        assert line in lines
    (start,) = [number for number, line in enumerate(lines) if line.startswith("srun ")]
    assert lines.index("module load cuda") < start


def test_a_rule_of_a_table_cannot_bring_set_up_lines():
    rule = "{set:{launcher:{setup:[touch x]}}}"
    with pytest.raises(UserError, match="a table cannot set the launcher"):
        compose(["+table=demo", f"table.settings=[{rule}]", "launcher=slurm"])


@pytest.mark.parametrize(
    "part",
    ["}\nlauncher: {setup: [touch x]}", ", settings: [{choose: {launcher: slurm}}]}"],
)
def test_a_table_of_an_added_folder_cannot_either(tmp_path, part):
    table = f"table: {{title: Mine, paper: Ours, methods: [sgd], seeds: [0]{part}"
    added = write(tmp_path / "added", {"table/evil.yaml": f"# @package _global_\n{table}\n"})
    with pytest.raises(UserError, match="a table cannot set the launcher"):
        compose(["+table=evil", *as_overrides([added])])


@pytest.mark.parametrize(
    ("hung_up", "cancelled"), [(False, ["34_0", "34_1"]), (True, [])], ids=["Ctrl-C", "SIGHUP"]
)
def test_tasks_are_cancelled_when_the_sweep_is_interrupted_but_not_by_a_closed_terminal(
    hung_up, cancelled, false_slurm, tmp_path, monkeypatch
):
    monkeypatch.setattr("dpbench.execution.slurm.hung_up", lambda: hung_up)
    place = Slurm("slurm", None, minutes=9, gpus=0, cpus=1, memory_gb=1, at_once=5, requeues=2)
    (tmp_path / "bin" / "sacct").write_text("#!/bin/sh\necho 'JobID|State'\n")

    def interrupt(tasks):
        raise KeyboardInterrupt

    monkeypatch.setattr("dpbench.execution.slurm._outcomes", interrupt)
    # submitit remembers what it heard of a number.
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(sbatch.read_text().replace("job 12", "job 34"))
    with pytest.raises(KeyboardInterrupt), place.start(1, tmp_path / "launched") as attempts:
        list(attempts([run_config([f"seed={seed}"]) for seed in (0, 1)], False))
    (tmp_path / "cancelled").touch(exist_ok=True)
    assert sorted((tmp_path / "cancelled").read_text().split()) == cancelled


def test_without_slurm_there_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    config = run_config(SMALL)
    with pytest.raises(UserError, match=r"found no sbatch"):
        config.launcher.start(1, tmp_path).__enter__()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("cluster=slrum", "launcher.cluster=slrum is unknown: did you mean slurm"),
        ("minutes=0", "launcher.minutes must be a whole number of at least 1, got 0."),
        ("account='a b'", "launcher.account='a b' is not a valid name."),
        ("setup=[3]", r"launcher.setup must be a list of texts, got \[3\]."),
        ("setup=['']", "each of launcher.setup must be one line of text, got ''."),
        ("parameters={time:3}", "launcher.parameters.time is not passed to .*set launcher.minutes"),
        ("parameters={X:3}", "launcher.parameters.X is not passed to sbatch: misspelt"),
        ("parameters={a:[1]}", "launcher.parameters must be a mapping"),
        ("at_once=many", "launcher.at_once must be a whole number, got 'many'."),
    ],
)
def test_settings_that_cannot_be_are_refused(setting, sentence, tmp_path):
    asked = [*SMALL, f"launcher.{setting}", f"results_dir={tmp_path / 'nowhere'}"]
    with pytest.raises(UserError, match=sentence):
        sweeps.plan_sweep("some", [asked])
    assert not (tmp_path / "nowhere").exists()
