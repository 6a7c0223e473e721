"""Runs on this machine, in this process or in several."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import SimpleQueue

from dpbench.errors import show_warnings_as_messages
from dpbench.execution.attempt import attempt
from dpbench.execution.launcher import Attempts, Failure, Outcome
from dpbench.training.interrupts import exit_sooner, interrupts_ignored, listening

GRACE = 10.0
"""Seconds for interrupted processes to finish their step and write a checkpoint."""


@dataclass(frozen=True)
class Local:
    """In this process if jobs is 1, otherwise in that many processes with one thread each."""

    def start(self, jobs: int, folder: Path) -> AbstractContextManager[Attempts]:
        return nullcontext(one_by_one) if jobs == 1 else workers(jobs)


def one_by_one(runs: Sequence[list[str]], wait: bool) -> Iterator[tuple[int, Outcome]]:
    """In this process; with a progress bar if there is only one run."""
    for number, overrides in enumerate(runs):
        yield number, attempt(overrides, wait, quiet=len(runs) > 1)


@contextmanager
def workers(jobs: int) -> Iterator[Attempts]:
    """In several processes, which end with this context, and with this process."""
    pool = [Worker() for _ in range(jobs)]
    idle: SimpleQueue[Worker] = SimpleQueue()
    for worker in pool:
        idle.put(worker)

    def on_idle_worker(overrides: list[str], wait: bool) -> Outcome:
        worker = idle.get()
        try:
            return worker.attempt(["threads=1", *overrides], wait)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(jobs) as threads:

        def attempts(runs: Sequence[list[str]], wait: bool) -> Iterator[tuple[int, Outcome]]:
            indices = {threads.submit(on_idle_worker, run, wait): i for i, run in enumerate(runs)}
            for future in as_completed(indices):
                yield indices[future], future.result()

        try:
            yield attempts
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for worker in pool:
                worker.stop()
            end = time.monotonic() + GRACE
            for worker in pool:
                worker.wait_or_kill(end - time.monotonic())


class Worker:
    """A process that executes one run after the other, and is replaced when it dies."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._lock, self._stopped = threading.Lock(), False

    def attempt(self, overrides: list[str], wait: bool) -> Outcome:
        if not self._start():
            return Failure("the sweep was stopped before this run.")
        try:
            self._pipe.send((overrides, wait))
            return self._pipe.recv()
        except (EOFError, OSError):
            return self._died()

    def stop(self) -> None:
        """Ask the process to end after its step, and start no other."""
        with self._lock:
            self._stopped = True
            if self._process:
                self._process.terminate()

    def wait_or_kill(self, seconds: float) -> None:
        """Wait for the stopped process to end, and kill it after that time."""
        if process := self._process:
            process.join(max(0.0, seconds))
            process.kill()
            process.join()

    def _start(self) -> bool:
        """Start a process if there is none; False if this worker was stopped."""
        with self._lock:
            if self._process or self._stopped:
                return not self._stopped
            # Spawned, because a forked process inherits torch's thread pools without their threads.
            context = get_context("spawn")
            self._pipe, child = context.Pipe()
            self._process = context.Process(target=_serve, args=(child, os.getpid()))
            with interrupts_ignored():  # signals are for this process, which stops its workers
                self._process.start()
            child.close()
            return True

    def _died(self) -> Failure:
        with self._lock:
            process, self._process = self._process, None
        assert process
        process.join()
        self._pipe.close()
        return Failure(
            f"its process was killed (exit code {process.exitcode}), most likely because memory "
            "ran out: lower jobs."
        )


def _serve(pipe: Connection, parent: int) -> None:
    """Execute the runs that the parent sends, until it closes the pipe."""
    exit_sooner()
    _exit_with(parent)
    show_warnings_as_messages()
    with (
        listening((signal.SIGTERM,), quiet=True),
        suppress(EOFError, BrokenPipeError, KeyboardInterrupt),
    ):
        while True:
            overrides, wait = pipe.recv()
            pipe.send(attempt(overrides, wait))


def _exit_with(parent: int) -> None:
    """Exit when the parent has gone: the workers of a killed sweep must not go on training."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
