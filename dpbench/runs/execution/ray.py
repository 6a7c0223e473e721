"""Runs as tasks of a Ray cluster, whose machines share the results folder."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dpbench.runs.execution.launcher import Attempts
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.execution.task import COMMAND, Tasks, submitting
from dpbench.system.errors import UserError, first_line
from dpbench.system.interrupts import handlers_kept
from dpbench.system.validate import Count, NonNegative, Positive, Whole, quoted

GRACE = 10.0
"""Seconds for cancelled runs to finish their step and write a checkpoint."""

ENVIRONMENT = ("DPBENCH_", "HF_", "MLFLOW_", "PYTHONPATH", "WANDB_")
"""How the variables begin that a task takes from the command, as Slurm passes on all of them."""


@dataclass(frozen=True)
class Ray:
    """Each run is a task; the sweep waits for it, and cancels it if interrupted.

    address: of the cluster, as `auto` on one of its machines; None for that of RAY_ADDRESS, else
    for processes on this machine. cpus, gpus (or a share of one), memory_gb: per task. retries: how
    often a task starts again, from its last checkpoint, if its machine is lost.
    """

    address: str | None
    cpus: Count
    gpus: NonNegative
    memory_gb: Positive
    retries: Whole

    def __post_init__(self) -> None:
        if self.gpus > 1 and self.gpus % 1:
            raise UserError(
                f"launcher.gpus={quoted(self.gpus)} must be a share of one GPU, or a whole number."
            )

    @contextmanager
    def start(self, jobs: int, folder: Path) -> Iterator[Attempts[RunConfig]]:
        try:
            import ray
        except ImportError as error:
            raise UserError(
                "launcher=ray needs Ray, which is not installed: pip install 'dpbench-suite[ray]'."
            ) from error
        try:
            with handlers_kept():
                ray.init(self.address, include_dashboard=False, log_to_driver=False)
        except ConnectionError as error:
            raise UserError(
                f"launcher=ray found no cluster at {self.address}: {first_line(error)}. Start one "
                "with ray start --head, or leave launcher.address=null to use this machine."
            ) from error
        try:
            reserved = self._reserved([m["Resources"] for m in ray.nodes() if m["Alive"]])
            with submitting(folder, lambda tasks: RayTasks(ray, reserved, tasks)) as attempts:
                yield attempts
        finally:
            ray.shutdown()

    def _reserved(self, machines: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The options of a task; UserError if no machine, given by its resources, has these."""
        memory = int(self.memory_gb * 2**30)
        needed = {"CPU": self.cpus, "GPU": self.gpus, "memory": memory}
        if not any(all(m.get(key, 0) >= n for key, n in needed.items()) for m in machines):
            cpus, gpus, most = (max(m.get(key, 0) for m in machines) for key in needed)
            raise UserError(
                f"no machine of the Ray cluster has launcher.cpus={self.cpus}, gpus={self.gpus:g} "
                f"and memory_gb={self.memory_gb:g}: lower them to at most {cpus:g}, {gpus:g} and "
                f"{most / 2**30:.1f}."
            )
        options = {"num_cpus": self.cpus, "num_gpus": self.gpus, "memory": memory}
        return options | {"max_retries": self.retries}


class RayTasks:
    """Tasks that have been submitted to Ray, with options of its own."""

    def __init__(self, ray, options: Mapping[str, float], tasks: Tasks):
        remote = ray.remote(**options)(process_in(os.getcwd(), shared_environment()))
        numbers = range(len(tasks.runs))
        self._ray, self._ended = ray, dict[int, str]()
        self._left = {
            remote.remote(str(tasks.folder), str(tasks.log(n)), str(n)): n for n in numbers
        }

    def ended(self) -> Mapping[int, str]:
        """The numbers of the tasks that have ended, each with how; after a second."""
        if not self._left:
            time.sleep(1)
            return self._ended
        done, _ = self._ray.wait([*self._left], num_returns=len(self._left), timeout=1)
        self._ended |= {self._left.pop(task): self._how(task) for task in done}
        return self._ended

    def cancel(self) -> None:
        """End the tasks that are left; each writes a checkpoint."""
        for task in self._left:
            self._ray.cancel(task)
        if self._left:
            self._ray.wait([*self._left], num_returns=len(self._left), timeout=GRACE)

    def _how(self, task) -> str:
        try:
            return self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            return first_line(error)


def shared_environment() -> dict[str, str]:
    """The variables of this process that its tasks take over."""
    return {key: value for key, value in os.environ.items() if key.startswith(ENVIRONMENT)}


def process_in(cwd: str, environment: Mapping[str, str]) -> Callable[[str, str, str], str]:
    """A function that executes a task in a process of its own, in a folder and with variables of
    the command, and returns how it ended.

    Ray sends the code of a function within a function: its workers need no dpbench on their path.
    """

    def process(folder: str, log: str, number: str) -> str:
        for needed in (cwd, folder):
            if not os.path.isdir(needed):
                return f"{needed} is not on {os.uname().nodename}: all machines must share it"
        command = [sys.executable, *COMMAND, folder, number]
        with open(log, "ab") as out:
            process = subprocess.Popen(
                command, cwd=cwd, env={**os.environ, **environment}, stdout=out, stderr=out
            )
            try:
                while process.poll() is None:
                    time.sleep(0.1)  # Ray cancels a task between two instructions of Python
            finally:
                process.terminate()
                process.wait()
        return f"exit code {process.returncode}"

    return process
