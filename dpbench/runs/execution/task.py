"""Runs as tasks of a cluster, whose machines share the results folder.

A task is the command `python -m dpbench.execution.task FOLDER NUMBER`. Its settings and its answer
are text in a folder that is new and private for each submission: nothing that somebody else may
have left in the results folder is executed, or taken for an answer.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import yaml

from dpbench.runs.execution.attempt import attempt
from dpbench.runs.execution.launcher import Attempts, Failure, Outcome
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.records.reading import load
from dpbench.system import interrupts
from dpbench.system.errors import show_warnings_as_messages
from dpbench.system.files import check_writable, digest_of, write_atomically

COMMAND = ("-P", "-m", "dpbench.runs.execution.task")
"""Python's arguments before FOLDER and NUMBER; without -P, it would import from any folder that it
is started in."""

PATIENCE = 10.0
"""Seconds after the end of a task for its files to be seen, as NFS shows them late."""


@dataclass(frozen=True)
class Tasks:
    """Runs as tasks, numbered from 0; folder: of their settings, answers and logs."""

    folder: Path
    runs: Sequence[RunConfig]

    @classmethod
    def written(cls, launched: Path, runs: Sequence[RunConfig], wait: bool) -> "Tasks":
        """The tasks, with their settings written to a new folder in the folder `launched`. wait:
        whether they wait for runs that other processes are executing."""
        check_writable(launched)
        folder = Path(tempfile.mkdtemp(dir=launched.absolute()))
        for number, run in enumerate(runs):
            places = {"results_dir": run.results.absolute(), "data_dir": run.data_folder.absolute()}
            plain = run.plain | {key: str(place) for key, place in places.items()}
            settings = {"overrides": [*run.overrides], "plain": plain, "wait": wait}
            (folder / f"{number}.yaml").write_text(yaml.safe_dump(settings))
        return cls(folder, runs)

    def log(self, number: int) -> Path:
        """What a task prints."""
        return self.folder / f"{number}.log"

    def outcomes(self, ended: Callable[[], Mapping[int, str]]) -> Iterator[tuple[int, Outcome]]:
        """The number and the outcome of each task as it ends; removes the folder if none failed.

        ended: waits a moment, and returns the numbers of the tasks that have ended by what the
        cluster knows, each with how.
        """
        left, since, failed = {*range(len(self.runs))}, dict[int, float](), False
        while left:
            how, now = ended(), time.monotonic()
            since = {number: since.get(number, now) for number in how}
            with suppress(OSError):  # without the folder all tasks fail, and say so
                os.utime(self.folder)  # otherwise NFS may not look for new files in it
            answered = {int(path.stem) for path in self.folder.glob("*.json")}
            for number in sorted(left & (answered | how.keys())):
                outcome = self._outcome(number)
                if not outcome and now - since.get(number, now) >= PATIENCE:
                    outcome = self._lost(number, how[number])
                if outcome:
                    left.remove(number)
                    failed = failed or isinstance(outcome, Failure)
                    yield number, outcome
        if not failed:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):  # it has other submissions
                self.folder.parent.rmdir()

    def _outcome(self, number: int) -> Outcome | None:
        """What a task has answered, if it is a failure, or a record that is here and its own."""
        answer = self._answer(number)
        path = self.runs[number].path
        if isinstance(answer, str):
            return path if load(path) and digest_of(path) == answer else None
        return answer

    def _answer(self, number: int) -> str | Failure | None:
        """The checksum of the record or the failure that a task has answered; None until then."""
        try:
            answer = (self.folder / f"{number}.json").read_bytes()
            return msgspec.json.decode(answer, type=str | Failure)
        except (OSError, msgspec.DecodeError):  # also of a file that NFS does not show whole yet
            return None

    def _lost(self, number: int, how: str) -> Failure:
        """The failure of a task that has ended without an outcome."""
        if self._answer(number):
            return Failure(
                f"its record {self.runs[number].path} is not to be seen on this machine: set "
                "results_dir to a folder that all machines of the cluster share."
            )
        log = self.log(number)
        trace = log.read_text(errors="replace") if log.exists() else ""
        return Failure(f"task {number} of the cluster failed ({how}): see {log}.", trace)


class Job(Protocol):
    """Tasks that have been submitted."""

    def ended(self) -> Mapping[int, str]:
        """The numbers of the tasks that have ended, each with how; after a moment."""

    def cancel(self) -> None:
        """End the tasks that are left; each writes a checkpoint."""


@contextmanager
def submitting(
    folder: Path, submit: Callable[[Tasks], Job], left_alone: Callable[[], bool] = lambda: False
) -> Iterator[Attempts[RunConfig]]:
    """A function that executes runs as tasks. On exit those that are left are cancelled, unless
    they are to be left alone. folder: in which each submission has a new one."""
    jobs: list[Job] = []

    def attempts(runs: Sequence[RunConfig], wait: bool) -> Iterator[tuple[int, Outcome]]:
        tasks = Tasks.written(folder, runs, wait)
        jobs.append(submit(tasks))
        yield from tasks.outcomes(jobs[-1].ended)

    try:
        yield attempts
    finally:
        for job in () if left_alone() else jobs:
            job.cancel()


def answer(folder: Path, number: str) -> None:
    """Execute the run of a task, and write its answer."""
    settings = yaml.safe_load((folder / f"{number}.yaml").read_text())
    run = RunConfig(tuple(settings["overrides"]), settings["plain"])
    outcome = attempt(run, settings["wait"])
    result = outcome if isinstance(outcome, Failure) else digest_of(outcome)
    write_atomically(folder / f"{number}.json", msgspec.json.encode(result))


def main() -> None:
    interrupts.exit_sooner()
    interrupts.end_with(os.getppid())
    show_warnings_as_messages()
    with interrupts.listening():
        try:
            answer(Path(sys.argv[1]), sys.argv[2])
        except KeyboardInterrupt:
            interrupts.exit_interrupted()


if __name__ == "__main__":
    main()
