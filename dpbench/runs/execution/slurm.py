"""Runs on a Slurm cluster, as array jobs whose tasks can be requeued."""

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dpbench.runs.execution.array_job import ArrayJob, Job, Processes
from dpbench.runs.execution.launcher import Attempts, Outcome
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.execution.task import COMMAND, Tasks
from dpbench.system.errors import UserError
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

    @contextmanager
    def start(self, jobs: int, folder: Path) -> Iterator[Attempts[RunConfig]]:
        if self.cluster == "slurm" and not shutil.which("sbatch"):
            raise UserError(
                "launcher=slurm found no sbatch: run the command on a login node of the cluster, "
                "or try it here with launcher.cluster=local."
            )
        submitted: list[Job] = []

        def attempts(runs: Sequence[RunConfig], wait: bool) -> Iterator[tuple[int, Outcome]]:
            tasks = Tasks.written(folder, runs, wait)
            submitted.append(self._submitted(tasks))
            yield from tasks.outcomes(submitted[-1].ended)

        try:
            yield attempts
        finally:
            for job in submitted if not hung_up() else ():
                job.cancel()

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
        """The options of sbatch."""
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
    """UserError for text of several lines, which would be more than one option or command."""
    if not text.isprintable() or not text:
        raise UserError(f"{what} must be one line of text, got {quoted(text)}.")
