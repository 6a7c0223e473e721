"""The launchers on a real Slurm and a real Ray of two nodes, on the loopback interface alone."""

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dpbench.runs.execution import sweep as sweeps
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load
from tests.runs.execution.test_task import default_signals

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
MARK = "DPBENCH_TEST_CLUSTER"
LIMIT = 240
"""Seconds for whatever a test waits for."""

LONG = ["model=logistic", "batch_size=256", "method=sgd"]

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}
SlurmdSpoolDir={folder}
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=30
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=high Nodes={host} State=UP PriorityTier=10 PreemptMode=OFF
"""


class Cluster:
    """A network namespace with daemons and commands, which all end with it."""

    def __init__(self, folder, **environment):
        self.folder, self.mark, self._started = folder, secrets.token_hex(8), []
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("DPBENCH_", "RAY_"))},
            **{"PATH": PATH, MARK: self.mark, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            **environment,
        }
        # Another address than 127.0.0.1, without which getaddrinfo finds no address at all.
        up = "ip link set lo up && ip addr add 10.99.0.1/32 dev lo && echo up && exec sleep 1800"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", up],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if self._holder.stdout.read(2) != b"up":
            pytest.skip("no network namespace can be made here: needs root and iproute2")

    def start(self, *command, cwd=None, **environment):
        """A process whose output goes to a file, `process.said`."""
        said = self.folder / f"{Path(command[0]).name}-{secrets.token_hex(4)}.out"
        with said.open("wb") as out:
            process = subprocess.Popen(
                ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", *map(str, command)],
                env=self.environment | environment,
                preexec_fn=default_signals,
                cwd=cwd or self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        process.said = said
        self._started.append(process)
        return process

    def run(self, *command):
        """The output of a command."""
        process = self.start(*command)
        process.wait(LIMIT)
        return process.said.read_text()

    def sweep(self, *overrides, **about):
        return self.start(sys.executable, "-m", "dpbench", "run", "-m", *LONG, *overrides, **about)

    def signal_task(self, number):
        """Sends SIGUSR2 to a task of the only job, as Slurm does near a time limit."""
        job = self.run("squeue", "--noheader", "--format=%F").split()[0]
        self.run("scancel", "--signal=USR2", f"{job}_{number}")

    def kill(self, mark):
        """Kills all processes whose environment has a mark."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"={mark}\0".encode() in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)

    def stop(self):
        self.kill(self.mark)
        for process in (*self._started, self._holder):
            process.wait()
        self._holder.stdout.close()


def until(condition, process=None):
    """Waits for a condition, and gives its value; fails with what the process has said."""
    end = time.monotonic() + LIMIT
    while not (value := condition()):
        said = process.said.read_text() if process else ""
        assert time.monotonic() < end, said
        assert process is None or process.poll() is None, said
        time.sleep(0.1)
    return value


def ended(process, code=0):
    assert process.wait(LIMIT) == code, process.said.read_text()
    return process.said.read_text()


def steps(results, number=1):
    """Whether so many runs are training."""
    return len(list(results.glob("checkpoints/*/steps"))) == number


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    missing = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if missing:
        pytest.skip(f"no {missing[0]}: apt-get install slurm-wlm munge")
    folder = tmp_path_factory.mktemp("slurm")
    about = {"host": socket.gethostname().partition(".")[0], "user": getpass.getuser()}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, **about))
    (folder / "key").write_bytes(secrets.token_bytes(1024))
    (folder / "key").chmod(0o600)
    cluster = Cluster(folder, SLURM_CONF=str(folder / "slurm.conf"))
    try:
        munge = [f"--{n}={folder}/munge.{n}" for n in ("pid-file", "log-file", "seed-file")]
        files = [f"--socket={folder}/munge.sock", f"--key-file={folder}/key", *munge]
        cluster.start("munged", "--foreground", "--force", *files)
        until((folder / "munge.sock").exists)
        cluster.start("slurmctld", "-D")
        cluster.start("slurmd", "-D")
        until(lambda: "idle" in cluster.run("sinfo", "--noheader"))
        yield cluster
    finally:
        cluster.stop()


SMALL_TASKS = ["launcher=slurm", "launcher.memory_gb=0.5"]


def queue(slurm):
    """The states of the tasks, by number."""
    listed = slurm.run("squeue", "--array", "--noheader", "--format=%K %T").splitlines()
    return dict(line.split() for line in listed)


def test_two_sweeps_at_once_by_slurm_give_one_set_of_records(slurm, tmp_path):
    settings = (*SMALL_TASKS, "seed=0,1", "epochs=2", "results_dir=r")
    both = [slurm.sweep(*settings, cwd=tmp_path) for _ in range(2)]
    said = [ended(one).split() for one in both]
    paths = [f"r/runs/{path.name}" for path in tmp_path.glob("r/runs/*")]
    assert len(paths) == 2
    assert all(path in words for path in paths for words in said)
    assert {path.name for path in (tmp_path / "r").iterdir()} == {"runs", "sweeps"}


def test_tasks_that_are_preempted_or_out_of_time_go_on_bit_for_bit(slurm, tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    asked = (*SMALL_TASKS, "seed=0,1", "epochs=1500", f"results_dir={there}")
    sweep = slurm.sweep(*asked)
    until(lambda: steps(there, 2), sweep)
    slurm.signal_task(0)
    slurm.run("sbatch", "--partition=high", "--cpus-per-task=2", "--output=/dev/null", "--wrap=:")
    until(lambda: len(list(there.glob("checkpoints/*/*.ckpt"))) == 2, sweep)
    ended(sweep)
    records = [load(path) for path in there.glob("runs/*")]
    assert [record.provenance["resumed"] for record in records] == [1, 1]
    alone = run_config([*LONG, "epochs=1500", f"results_dir={here}"])
    assert sweeps.run_and_report(sweeps.plan_sweep("one", [alone.overrides])) == ""
    other = load(alone.path)
    (same,) = [record for record in records if record.config["seed"] == 0]
    assert (same.metrics, same.history, same.privacy) == (
        *(other.metrics, other.history, other.privacy),
    )


def test_a_signal_at_the_start_is_no_failure_and_ctrl_c_cancels_with_a_checkpoint(slurm, tmp_path):
    sweep = slurm.sweep(*SMALL_TASKS, "epochs=800000", f"results_dir={tmp_path}")
    until(lambda: queue(slurm).get("0") == "RUNNING", sweep)
    time.sleep(0.5)  # Python imports
    slurm.signal_task(0)
    until(lambda: steps(tmp_path), sweep)
    sweep.send_signal(signal.SIGINT)
    ended(sweep, 130)
    until(lambda: not queue(slurm))
    assert list(tmp_path.glob("checkpoints/*/*.ckpt"))


@pytest.mark.long
def test_a_task_goes_on_after_its_time_limit_of_a_minute(slurm, tmp_path):
    asked = (*SMALL_TASKS, "launcher.minutes=1", "launcher.requeues=1", "epochs=800000")
    sweep = slurm.sweep(*asked, f"results_dir={tmp_path}")
    until(lambda: list(tmp_path.glob("checkpoints/*/*1.ckpt")), sweep)
    until(lambda: list(tmp_path.glob("checkpoints/*/*2.ckpt")), sweep)
    assert "task 0 of the cluster failed (FAILED)" in ended(sweep, 2)
    (log,) = tmp_path.glob("launched/*/0.log")
    assert "out of time more often than launcher.requeues allows" in log.read_text()


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    pytest.importorskip("ray", reason="no Ray: pip install 'ray[default]'")
    # Without tokens, whatever the user's own clusters have: nobody else reaches this one.
    own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    cluster = Cluster(tmp_path_factory.mktemp("ray"), **own)
    shared = ("--node-ip-address=127.0.0.1", "--num-cpus=1", "--object-store-memory=100000000")
    short = f"/tmp/{cluster.mark}"  # the path of a socket has at most 107 characters
    alone = {"PYTHONPATH": ""}  # a worker has only what is installed
    try:
        head = ("--head", "--port=26379", "--include-dashboard=false", f"--temp-dir={short}")
        cluster.start("ray", "start", "--block", *head, *shared, **alone)
        until(lambda: "Active" in cluster.run("ray", "status", "--address=127.0.0.1:26379"))
        second = {MARK: f"second-{cluster.mark}"} | alone
        cluster.start("ray", "start", "--block", "--address=127.0.0.1:26379", *shared, **second)
        until(lambda: "/2.0 CPU" in cluster.run("ray", "status", "--address=127.0.0.1:26379"))
        yield cluster
    finally:
        cluster.kill(f"second-{cluster.mark}")
        cluster.stop()
        shutil.rmtree(short, ignore_errors=True)


ON_RAY = ["launcher=ray", "launcher.address=127.0.0.1:26379", "launcher.memory_gb=0.2"]


def test_ctrl_c_cancels_tasks_of_ray_with_a_checkpoint(ray, tmp_path):
    sweep = ray.sweep(*ON_RAY, "seed=0,1", "epochs=800000", f"results_dir={tmp_path}")
    until(lambda: steps(tmp_path, 2), sweep)
    sweep.send_signal(signal.SIGINT)
    ended(sweep, 130)
    until(lambda: len(list(tmp_path.glob("checkpoints/*/*.ckpt"))) == 2)


def test_records_of_ray_are_in_the_folder_of_the_command_though_a_node_is_killed(ray, tmp_path):
    sweep = ray.sweep(*ON_RAY, "seed=0,1", "epochs=4000", "results_dir=r", cwd=tmp_path)
    until(lambda: steps(tmp_path / "r", 2), sweep)
    ray.kill(f"second-{ray.mark}")
    said = ended(sweep)
    paths = [*tmp_path.glob("r/runs/*")]
    assert sorted(load(path).config["seed"] for path in paths) == [0, 1]
    assert all(f"r/runs/{path.name}" in said for path in paths)


def test_what_no_machine_of_ray_has_is_refused(ray, tmp_path):
    sweep = ray.sweep(*ON_RAY, "launcher.gpus=1", "seed=0,1", f"results_dir={tmp_path}")
    assert "gpus=1 and memory_gb=0.2: lower them to at most 1, 0 and" in ended(sweep, 2)
