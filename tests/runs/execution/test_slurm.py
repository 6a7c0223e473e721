"""The way to Slurm: through processes in its place, and through false commands of its names."""

import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import as_overrides
from dpbench.runs.execution import slurm, task
from dpbench.runs.execution import sweep as sweeps
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.execution.slurm import Slurm
from dpbench.runs.records.reading import load
from dpbench.system.errors import UserError
from tests.plugin_files import BROKEN_NET, write

ROOT = Path(__file__).resolve().parents[3]

SMALL = ["epochs=1", "model=logistic", "batch_size=512", "method=sgd", "launcher=slurm"]


@pytest.mark.slow
def test_a_sweep_in_processes_makes_records_and_lists_what_failed(plugin, tmp_path, monkeypatch):
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


@pytest.fixture
def false_slurm(tmp_path, monkeypatch):
    """Commands by the names of Slurm's; the folder with the arguments and the script that sbatch
    got, the answer of squeue, and what was cancelled."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    scripts = {
        "sbatch": f'printf "%s\\n" "$@" >{tmp_path}/asked; for s in "$@"; do :; done; '
        f'cp "$s" {tmp_path}/script; echo "12;ours"',
        "squeue": f"cat {tmp_path}/states",
        "scancel": f"echo $@ >>{tmp_path}/cancelled",
    }
    for name, body in scripts.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_ / name).chmod(0o755)
    (tmp_path / "states").write_text("0 FAILED\n1 TIMEOUT\n")
    monkeypatch.setenv("PATH", f"{bin_}:/usr/bin:/bin")
    monkeypatch.setattr(slurm, "LOOKED_EVERY", 0)
    monkeypatch.setattr(task, "PATIENCE", 0)
    return tmp_path


def test_the_array_job_asks_for_what_the_settings_say(false_slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = Slurm("slurm", "short", minutes=90, gpus=1, cpus=3, memory_gb=7, at_once=2, requeues=4)
    with place.start(1, Path("launched")) as attempts:
        ends = dict(attempts([run_config([f"seed={seed}"]) for seed in (0, 1)], False))
    assert [n for n in ends if f"task {n} of the cluster failed" in ends[n].reason] == [0, 1]
    assert "(TIMEOUT): see " in ends[1].reason
    (folder,) = (tmp_path / "launched").iterdir()
    assert {
        *("--partition=short", "--time=90", "--gpus-per-node=1", "--cpus-per-task=3"),
        *("--mem=7168M", "--array=0-1%2", "--signal=USR2@90", "--requeue", "--open-mode=append"),
        *(f"--chdir={tmp_path}", f"--output={folder}/%a.log"),
    } < {*(tmp_path / "asked").read_text().splitlines()}
    script = (tmp_path / "script").read_text()
    assert (
        f"srun --ntasks=1 --cpus-per-task=3 {sys.executable} -P -m dpbench.runs.execution.task"
        in script
    )
    assert "((code == 140))" in script
    assert "((${SLURM_RESTART_COUNT:-0} < 4)) && exec scontrol requeue" in script
    assert subprocess.run(["bash", "-n", tmp_path / "script"], check=True)


@pytest.mark.parametrize(("minutes", "seconds"), [(1, 15), (2, 30), (6, 90), (600, 90)])
def test_a_task_is_told_of_its_limit_in_the_last_quarter(minutes, seconds, false_slurm, tmp_path):
    one = Slurm("slurm", None, minutes=minutes, gpus=0, cpus=1, memory_gb=1, at_once=1, requeues=1)
    with one.start(1, tmp_path / "launched") as attempts:
        list(attempts([run_config([])], False))
    assert f"--signal=USR2@{seconds}\n" in (tmp_path / "asked").read_text()


def test_the_job_has_what_a_cluster_wants(false_slurm, tmp_path):
    asked = [
        *("launcher=slurm", "launcher.account=ml", "launcher.qos=high", "+table=demo"),
        *("launcher.constraint='a100|h100'", "launcher.setup=[module load cuda,'echo $HOME; ls']"),
        "launcher.parameters={reservation:ours,exclude:'node[3-7]',exclusive:true,quiet:false}",
    ]
    with run_config(asked).launcher.start(1, tmp_path / "launched") as attempts:
        list(attempts([run_config(["seed=0"])], False))
    options = (tmp_path / "asked").read_text().splitlines()
    assert {
        *("--account=ml", "--qos=high", "--constraint=a100|h100", "--reservation=ours"),
        *("--exclude=node[3-7]", "--exclusive"),
    } < {*options}
    assert not [option for option in options if option.startswith(("--quiet", "--partition"))]
    lines = (tmp_path / "script").read_text().splitlines()
    (start,) = [number for number, line in enumerate(lines) if line.startswith("srun ")]
    assert lines[start - 2 : start] == ["module load cuda", "echo $HOME; ls"]


def test_a_job_that_slurm_refuses_is_one_sentence(false_slurm, tmp_path):
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho no such partition >&2; exit 1\n")
    with (
        pytest.raises(UserError, match="Slurm refuses the job: no such partition"),
        run_config(SMALL).launcher.start(1, tmp_path / "launched") as attempts,
    ):
        list(attempts([run_config([])], False))


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("12", "12"),
        ("12;ours", "12"),
        ("Welcome to the cluster\\n12", "12"),
        ("Submitted batch job 12", "12"),
        ("12\\nYour project has 3 hours left", None),
        ("", None),
    ],
)
def test_the_number_of_a_job_is_found_among_what_a_cluster_says(
    false_slurm, tmp_path, said, number
):
    """With another one all tasks would be forgotten by Slurm, and none could be cancelled."""
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(f"#!/bin/sh\nprintf '{said}\\n'\n")
    if number is None:
        with pytest.raises(UserError, match="sbatch has not given the number of the job, but '"):
            slurm.ArrayJob(sbatch, 1, 1, ())
    else:
        slurm.ArrayJob(sbatch, 1, 1, ()).cancel()
        assert (tmp_path / "cancelled").read_text() == f"--quiet {number}\n"


def test_tasks_have_ended_that_slurm_lists_so_or_has_forgotten(false_slurm, tmp_path, monkeypatch):
    """One that waits, runs or is requeued has not; without an answer nothing has changed."""
    monkeypatch.setattr(slurm, "ASKED_EVERY", 0)
    job = slurm.ArrayJob(tmp_path / "bin" / "sbatch", 4, 4, ())
    states = tmp_path / "states"
    states.write_text("0 PENDING\n1 RUNNING\n2 COMPLETING\n3 REQUEUED\n")
    assert job.ended() == {}
    states.write_text("0 CANCELLED\n1 RUNNING\n2 PENDING\n")
    known = {0: "CANCELLED", 3: "forgotten by Slurm"}
    assert job.ended() == known
    squeue = tmp_path / "bin" / "squeue"
    squeue.write_text("#!/bin/sh\necho Unable to contact slurm controller >&2; exit 1\n")
    assert job.ended() == known
    for garbage in ("0 RUNNING\\nslow", "<html>", "0 RUNNING 1 RUNNING", "\\377 FAILED"):
        squeue.write_text(f"#!/bin/sh\nprintf '{garbage}\\n'\n")
        assert job.ended() == known
    squeue.unlink()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path / "bin"))  # as while a cluster is updated
        assert job.ended() == known
    squeue.write_text("#!/bin/sh\necho error: Invalid job id specified >&2; exit 1\n")
    squeue.chmod(0o755)
    assert job.ended() == dict.fromkeys(range(4), "forgotten by Slurm")


@pytest.mark.parametrize(
    "part", ["}\nlauncher: {setup: [touch x]}", ", settings: [{choose: {launcher: slurm}}]}"]
)
def test_a_table_of_an_added_folder_cannot_either(tmp_path, part):
    table = f"table: {{title: Mine, paper: Ours, methods: [sgd], seeds: [0]{part}"
    added = write(tmp_path / "added", {"table/evil.yaml": f"# @package _global_\n{table}\n"})
    with pytest.raises(UserError, match="a table cannot set the launcher"):
        compose(["+table=evil", *as_overrides([added])])


@pytest.mark.parametrize(
    ("hung_up", "cancelled"), [(False, "--quiet 12\n"), (True, "")], ids=["Ctrl-C", "SIGHUP"]
)
def test_tasks_are_cancelled_when_the_sweep_is_interrupted_but_not_by_a_closed_terminal(
    hung_up, cancelled, false_slurm, tmp_path, monkeypatch
):
    monkeypatch.setattr("dpbench.execution.slurm.hung_up", lambda: hung_up)

    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(slurm.ArrayJob, "ended", interrupt)
    place = run_config(SMALL).launcher.start(1, tmp_path / "launched")
    with pytest.raises(KeyboardInterrupt), place as attempts:
        list(attempts([run_config([f"seed={seed}"]) for seed in (0, 1)], False))
    (tmp_path / "cancelled").touch()
    assert (tmp_path / "cancelled").read_text() == cancelled


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
