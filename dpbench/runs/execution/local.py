"""Runs on this machine, in this process or in several."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

from dpbench.runs.execution.attempt import attempt
from dpbench.runs.execution.launcher import Attempts, Failure, Outcome, Worker, WorkerDied
from dpbench.runs.execution.run_config import RunConfig
from dpbench.system.errors import show_warnings_as_messages
from dpbench.system.interrupts import end_with, exit_sooner, listening

VISIBLE = "CUDA_VISIBLE_DEVICES"

GRACE = 10.0
"""Seconds for interrupted processes to finish their step and write a checkpoint."""


@dataclass(frozen=True)
class Local:
    """Runs in this process if jobs is 1, otherwise in that many processes with one thread each."""

    def start(self, jobs: int, folder: Path) -> AbstractContextManager[Attempts[RunConfig]]:
        return nullcontext(one_by_one) if jobs == 1 else workers(jobs)


def one_by_one(runs: Sequence[RunConfig], wait: bool) -> Iterator[tuple[int, Outcome]]:
    """Execute the runs in this process, with a progress bar if there is only one."""
    for number, run in enumerate(runs):
        yield number, attempt(run, wait, quiet=len(runs) > 1)


@contextmanager
def workers(jobs: int) -> Iterator[Attempts[RunConfig]]:
    """Execute runs in several processes, which end with this context, or with this process."""
    slots = [Slot(number) for number in range(jobs)]
    idle: SimpleQueue[Slot] = SimpleQueue()
    for slot in slots:
        idle.put(slot)

    def in_idle_slot(run: RunConfig, wait: bool) -> Outcome:
        slot = idle.get()
        try:
            return slot.attempt(run.changed(threads=run["threads"] or 1), wait)
        finally:
            idle.put(slot)

    with ThreadPoolExecutor(jobs) as threads:

        def attempts(runs: Sequence[RunConfig], wait: bool) -> Iterator[tuple[int, Outcome]]:
            indices = {threads.submit(in_idle_slot, run, wait): i for i, run in enumerate(runs)}
            for future in as_completed(indices):
                yield indices[future], future.result()

        try:
            yield attempts
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for slot in slots:
                slot.stop()
            end = time.monotonic() + GRACE
            for slot in slots:
                slot.wait_or_kill(end - time.monotonic())


class Slot:
    """One of the jobs, by its number: a worker that executes one run after another, and is replaced
    if it dies."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._worker: Worker | None = None
        self._lock, self._stopped = threading.Lock(), False

    def attempt(self, run: RunConfig, wait: bool) -> Outcome:
        if not (worker := self._started()):
            return Failure("the sweep was stopped before this run.")
        try:
            return worker.call((run, wait))
        except WorkerDied as died:
            with self._lock:
                self._worker = None
            return Failure(
                f"its process was killed (exit code {died.exit_code}), most likely because memory "
                "ran out: lower jobs."
            )

    def stop(self) -> None:
        """Ask the process to end after its current step, and start no other."""
        with self._lock:
            self._stopped = True
            if self._worker:
                self._worker.terminate()

    def wait_or_kill(self, seconds: float) -> None:
        """Wait for the stopped process to end, and kill it after that time."""
        if worker := self._worker:
            worker.wait_or_kill(seconds)

    def _started(self) -> Worker | None:
        with self._lock:
            if self._stopped:
                return None
            self._worker = self._worker or Worker(_serve, os.getpid(), self._number)
            return self._worker


def _serve(pipe: Connection, parent: int, number: int) -> None:
    """Execute the runs that the parent sends, until it closes the pipe."""
    exit_sooner()
    end_with(parent)
    show_warnings_as_messages()
    with (
        listening((signal.SIGTERM,), quiet=True),
        redirect_stdout(sys.stderr),  # what plug-ins print: only the parent's output is read
        suppress(EOFError, BrokenPipeError, KeyboardInterrupt),
    ):
        while True:
            run, wait = pipe.recv()
            if run["device"] == "auto":
                keep_one_gpu(number)
            pipe.send(attempt(run, wait))


def keep_one_gpu(number: int) -> None:
    """Hide all GPUs but one from this process, which must not have used any: the jobs have them by
    turns."""
    import torch

    visible = os.environ.get(VISIBLE)
    gpus = visible.split(",") if visible else [*map(str, range(torch.cuda.device_count()))]
    if len(gpus) > 1:
        os.environ[VISIBLE] = gpus[number % len(gpus)]
