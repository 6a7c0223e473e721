"""Runs on a Slurm cluster, by submitit, as array jobs whose tasks can be requeued."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dpbench.execution.attempt import attempt
from dpbench.execution.launcher import Attempts, Failure, Outcome
from dpbench.execution.run_config import RunConfig
from dpbench.system.errors import UserError, show_warnings_as_messages
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
        executor, submitted = self._executor(folder), []

        def attempts(runs: Sequence[RunConfig], wait: bool) -> Iterator[tuple[int, Outcome]]:
            tasks = executor.map_array(SlurmTask(), runs, [wait] * len(runs))
            submitted.extend(tasks)
            yield from _outcomes(tasks)

        try:
            yield attempts
        finally:
            for task in submitted if not hung_up() else ():
                if not task.done():
                    task.cancel(check=False)

    def _executor(self, folder: Path):
        submitit = _submitit()
        options = {"slurm_max_num_timeout": self.requeues} if self.cluster == "slurm" else {}
        try:
            executor = submitit.AutoExecutor(folder, self.cluster, **options)
        except RuntimeError as error:
            raise UserError(
                "launcher=slurm found no sbatch: run the command on a login node of the cluster, "
                "or try it here with launcher.cluster=local."
            ) from error
        executor.update_parameters(
            name="dpbench",
            timeout_min=self.minutes,
            gpus_per_node=self.gpus,
            cpus_per_task=self.cpus,
            mem_gb=self.memory_gb,
            slurm_partition=self.partition,
            slurm_array_parallelism=self.at_once,
            slurm_account=self.account,
            slurm_qos=self.qos,
            slurm_constraint=self.constraint,
            slurm_setup=self.setup or None,
            slurm_additional_parameters=self.parameters or None,
        )
        return executor


def _one_line(what: str, text: str) -> None:
    """UserError for text of several lines, which would be more than one option or command."""
    if not text.isprintable() or not text:
        raise UserError(f"{what} must be one line of text, got {quoted(text)}.")


class SlurmTask:
    """A run as a task, which resumes when it is requeued after its time limit."""

    def __call__(self, run: RunConfig, wait: bool) -> Outcome:
        show_warnings_as_messages()
        return attempt(run, wait)

    def checkpoint(self, run: RunConfig, wait: bool):
        """The task to requeue; submitit calls the method of this name at the time limit."""
        return _submitit().helpers.DelayedSubmission(self, run, wait)


def _outcomes(tasks: Sequence) -> Iterator[tuple[int, Outcome]]:
    indices = {task.job_id: index for index, task in enumerate(tasks)}
    for task in _submitit().helpers.as_completed(tasks, poll_frequency=1):
        yield indices[task.job_id], _outcome(task)


def _outcome(task) -> Outcome:
    try:
        return task.result()
    except Exception as error:
        reason = f"task {task.job_id} of the cluster failed: see {task.paths.stderr}."
        return Failure(reason, str(error))


def _submitit():
    try:
        import submitit
    except ImportError as error:
        raise UserError(
            "launcher=slurm needs submitit, which is not installed: pip install "
            "'dpbench-suite[cluster]'."
        ) from error
    return submitit
