"""Array jobs of Slurm, and processes of this machine in the place of one."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from dpbench.system.errors import MAX_CHARACTERS, UserError

ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
}
"""The states in which a task of Slurm has ended for good; one that is requeued has others."""

LOOKED_EVERY, ASKED_EVERY = 1.0, 10.0
"""Seconds between two looks at the answers of tasks, and between two questions to Slurm."""


class Job(Protocol):
    """Tasks that have been submitted."""

    def ended(self) -> Mapping[int, str]:
        """The numbers of the tasks that have ended, each with how; after a moment."""

    def cancel(self) -> None:
        """End the tasks that are left; each writes a checkpoint."""


class ArrayJob:
    """A script as an array job; UserError if Slurm refuses it.

    tasks: their number. at_once: how many may run at a time. options: of sbatch.
    """

    def __init__(self, script: Path, tasks: int, at_once: int, options: Iterable[str]):
        array = f"--array=0-{tasks - 1}%{at_once}"
        done = _slurm("sbatch", "--parsable", array, *options, str(script))
        if done.returncode:
            raise UserError(f"Slurm refuses the job: {done.stderr.strip():.{MAX_CHARACTERS}}")
        self._number = done.stdout.strip().partition(";")[0]  # after it, the cluster's name
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
        if done.returncode and "Invalid job id" not in done.stderr:
            return self._ended
        states = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
        known = {n: states.get(str(n), "forgotten by Slurm") for n in range(self._tasks)}
        return {n: state for n, state in known.items() if state in ENDED or str(n) not in states}


def _slurm(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True)


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
