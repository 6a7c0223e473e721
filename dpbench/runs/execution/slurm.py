"""Runs on a Slurm cluster, as array jobs whose tasks can be requeued, or in processes of this
machine in the place of one."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from dpbench.runs.execution.launcher import Attempts
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.execution.task import COMMAND, Job, Tasks, submitting
from dpbench.system.errors import MAX_CHARACTERS, UserError
from dpbench.system.interrupts import hung_up
from dpbench.system.validate import Count, Positive, Whole, one_of, quoted

CLUSTERS = ("slurm", "local")

NAMES = {
    **dict.fromkeys(("partition", "account", "qos"), r"[\w.,-]+"),
    "constraint": r"[\w.,:&|*()\[\]-]+",
}
"""The settings that are names defined by the cluster, and the pattern that each must match."""

SETTINGS_OF = {
    **{"time": "minutes", "array": "at_once", "cpus-per-task": "cpus", "mem": "memory_gb"},
    **{"gpus-per-node": "gpus", "requeue": "requeues"},
    **{name: name for name in NAMES},
}
"""The options of sbatch that are settings of the launcher, which `parameters` must not repeat."""

WARNED = 90
"""The most seconds before the time limit at which a task is told to write a checkpoint; Slurm may
tell it a minute earlier."""

ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
}
"""The states in which a task of Slurm has ended for good; one that is requeued has others."""

LOOKED_EVERY, ASKED_EVERY = 1.0, 10.0
"""Seconds between two looks at the answers of tasks, and between two questions to Slurm."""

SCRIPT = """\
#!/bin/bash
trap '' TERM USR2  # for the task, at whose end this script goes on
{setup}
srun --ntasks=1 --cpus-per-task={cpus} {command}
code=$?
if ((code == {stopped})); then
    ((${{SLURM_RESTART_COUNT:-0}} < {requeues})) && exec scontrol requeue "$SLURM_JOB_ID"
    echo "dpbench: out of time more often than launcher.requeues allows: raise launcher.minutes."
fi
exit $code
"""
"""The script of a task; a signal near the time limit, also at its start, ends it with the code
`stopped`."""


class ArrayJob:
    """A script as an array job; UserError if Slurm refuses it. tasks: their number. at_once: how
    many may run at a time. options: of sbatch."""

    def __init__(self, script: Path, tasks: int, at_once: int, options: Iterable[str]):
        array = f"--array=0-{tasks - 1}%{at_once}"
        done = _slurm("sbatch", "--parsable", array, *options, str(script))
        if done.returncode:
            raise UserError(f"Slurm refuses the job: {done.stderr.strip():.{MAX_CHARACTERS}}")
        # The cluster's name may follow, and a cluster's own greeting come before.
        if not (match := re.search(r"(?:^|\s)(\d+)(;\S*)?\s*\Z", done.stdout)):
            raise UserError(
                f"sbatch has not given the number of the job, but {quoted(done.stdout)}: find it "
                "in squeue, and rerun the same command when it has ended."
            )
        self._number = match[1]
        self._tasks, self._ended, self._asked = tasks, dict[int, str](), 0.0

    def ended(self) -> Mapping[int, str]:
        time.sleep(LOOKED_EVERY)
        if time.monotonic() - self._asked >= ASKED_EVERY:
            self._ended = self._states()
            self._asked = time.monotonic()
        return self._ended

    def cancel(self) -> None:
        _slurm("scancel", "--quiet", self._number)

    def _states(self) -> dict[int, str]:
        """The states of the tasks that have ended; those known before, if Slurm does not answer."""
        fields = ("--array", "--noheader", "--states=all", "--format=%K %T")
        done = _slurm("squeue", f"--jobs={self._number}", *fields)
        refused = done.returncode and "Invalid job id" not in done.stderr
        if refused or not re.fullmatch(r"(\d+ +[A-Z_]+ *\n)*", done.stdout):
            return self._ended
        states = dict(line.split() for line in done.stdout.splitlines())
        known = {n: states.get(str(n), "forgotten by Slurm") for n in range(self._tasks)}
        return {n: state for n, state in known.items() if state in ENDED or str(n) not in states}


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:  # as while the command is replaced on the cluster
        return subprocess.CompletedProcess(command, 127, "", str(error))


class Processes:
    """A script in processes of this machine, with the variable of an array job in each."""

    EACH = 'seq 0 $(($1 - 1)) | xargs -P "$2" -I{} env SLURM_ARRAY_TASK_ID={} bash "$3"'

    def __init__(self, script: Path, tasks: int, at_once: int):
        arguments = (str(tasks), str(at_once), str(script))
        self._tasks = tasks
        self._shell = subprocess.Popen(
            ["bash", "-c", self.EACH, "bash", *arguments], start_new_session=True
        )

    def ended(self) -> Mapping[int, str]:
        time.sleep(LOOKED_EVERY)
        over = self._shell.poll() is not None
        return dict.fromkeys(range(self._tasks), "its process ended") if over else {}

    def cancel(self) -> None:
        if self._shell.poll() is None:
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.wait()


@dataclass(frozen=True)
class Slurm:
    """Each run is a task of an array job; the sweep waits for it, and cancels it if interrupted,
    but not if the terminal is closed.

    cluster: slurm, or local for processes on this machine, to try it. partition: None for the
    cluster's default. minutes, gpus, cpus, memory_gb: per task. at_once: the number of tasks that
    run at a time. requeues: how often a task that ran out of time is requeued. account, qos,
    constraint: None for the cluster's default. setup: lines of shell that precede each task.
    parameters: further options of sbatch by name.
    """

    cluster: str
    partition: str | None
    minutes: Count
    gpus: Whole
    cpus: Count
    memory_gb: Positive
    at_once: Count
    requeues: Whole
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    setup: list[str] = field(default_factory=list)
    parameters: dict[str, str | int | float | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_of("launcher.cluster", self.cluster, CLUSTERS)
        for name, pattern in NAMES.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(pattern, value):
                raise UserError(f"launcher.{name}={quoted(value)} is not a valid name.")
        for key, value in self.parameters.items():
            if not re.fullmatch(r"[a-z][a-z0-9_-]*", key) or key in SETTINGS_OF:
                setting = f"set launcher.{SETTINGS_OF[key]}" if key in SETTINGS_OF else "misspelt"
                raise UserError(f"launcher.parameters.{key} is not passed to sbatch: {setting}.")
            _one_line(f"launcher.parameters.{key}", str(value))
        for line in self.setup:
            _one_line("each of launcher.setup", line)

    def start(self, jobs: int, folder: Path) -> AbstractContextManager[Attempts[RunConfig]]:
        if self.cluster == "slurm" and not shutil.which("sbatch"):
            raise UserError(
                "launcher=slurm found no sbatch: run the command on a login node of the cluster, "
                "or try it here with launcher.cluster=local."
            )
        return submitting(folder, self._submitted, left_alone=hung_up)

    def _submitted(self, tasks: Tasks) -> Job:
        script, number = tasks.folder / "script.sh", len(tasks.runs)
        setup = "\n".join(self.setup)
        command = (
            f"{shlex.join([sys.executable, *COMMAND, str(tasks.folder)])} $SLURM_ARRAY_TASK_ID"
        )
        if self.cluster == "local":
            log = shlex.quote(f"{tasks.folder}/") + "$SLURM_ARRAY_TASK_ID.log"
            script.write_text(f"exec >{log} 2>&1\n{setup}\nexec {command}\n")
            return Processes(script, number, self.at_once)
        settings = {"stopped": 128 + signal.SIGUSR2, "cpus": self.cpus, "requeues": self.requeues}
        script.write_text(SCRIPT.format(setup=setup, command=command, **settings))
        return ArrayJob(script, number, self.at_once, self._options(tasks))

    def _options(self, tasks: Tasks) -> Iterator[str]:
        options = {
            "job-name": "dpbench",
            "chdir": os.getcwd(),
            "output": f"{str(tasks.folder).replace('%', '%%')}/%a.log",
            "open-mode": "append",
            "time": self.minutes,
            "signal": f"USR2@{min(WARNED, 15 * self.minutes)}",
            "requeue": True,
            "cpus-per-task": self.cpus,
            "mem": f"{self.memory_gb * 1024:.0f}M",
            "gpus-per-node": self.gpus or None,
            **{name: getattr(self, name) for name in NAMES},
            **self.parameters,
        }
        for key, value in options.items():
            if value is not None and value is not False:
                yield f"--{key}" if value is True else f"--{key}={value}"


def _one_line(what: str, text: str) -> None:
    if not text.isprintable() or not text:
        raise UserError(f"{what} must be one line of text, got {quoted(text)}.")
