"""Runs on this machine, in this process or in several."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import SimpleQueue

from dpbench.errors import show_warnings_as_messages
from dpbench.execution.attempt import attempt
from dpbench.execution.launcher import Attempts, Failure, Outcome
from dpbench.training.interrupts import interrupts_ignored, listening

GRACE = 10.0
"""Seconds in which interrupted processes may end their step and put their run away."""


@dataclass(frozen=True)
class Local:
    """In this process if jobs is 1, or else in so many others, each with one thread."""

    @contextmanager
    def start(self, jobs: int, folder: Path) -> Iterator[Attempts]:
        if jobs == 1:
            yield one_by_one
            return
        with workers(jobs) as attempts:
            yield attempts


def one_by_one(runs: Sequence[list[str]], wait: bool) -> Iterator[tuple[int, Outcome]]:
    """In this process; with a progress bar of its own only where there is one run."""
    for number, overrides in enumerate(runs):
        yield number, attempt(overrides, wait, quiet=len(runs) > 1)


@contextmanager
def workers(jobs: int) -> Iterator[Attempts]:
    """In several processes, which end with this block, and with this process."""
    all_workers = [Worker() for _ in range(jobs)]
    idle: SimpleQueue[Worker] = SimpleQueue()
    for worker in all_workers:
        idle.put(worker)

    def on_any(overrides: list[str], wait: bool) -> Outcome:
        worker = idle.get()
        try:
            return worker.attempt(["threads=1", *overrides], wait)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(jobs) as threads:

        def attempts(runs: Sequence[list[str]], wait: bool) -> Iterator[tuple[int, Outcome]]:
            numbers = {threads.submit(on_any, run, wait): n for n, run in enumerate(runs)}
            for future in as_completed(numbers):
                yield numbers[future], future.result()

        try:
            yield attempts
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for worker in all_workers:
                worker.stop()
            end = time.monotonic() + GRACE
            for worker in all_workers:
                worker.wait_or_kill(end - time.monotonic())


class Worker:
    """A process that attempts one run after the other; another takes its place when it dies."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._lock, self._stopped = threading.Lock(), False

    def attempt(self, overrides: list[str], wait: bool) -> Outcome:
        if not self._start():
            return Failure("the sweep was stopped before it.")
        try:
            self._pipe.send((overrides, wait))
            return self._pipe.recv()
        except (EOFError, OSError):
            return self._died()

    def stop(self) -> None:
        """Ask the process to end after its step, and begin no other."""
        with self._lock:
            self._stopped = True
            if self._process:
                self._process.terminate()

    def wait_or_kill(self, seconds: float) -> None:
        """Wait for the process that was stopped to end, and end it then, whatever it is doing."""
        if process := self._process:
            process.join(max(0.0, seconds))
            process.kill()
            process.join()

    def _start(self) -> bool:
        """Have a process, unless this worker was stopped."""
        with self._lock:
            if self._process or self._stopped:
                return not self._stopped
            # Spawned, because a forked process inherits torch's thread pools without their threads.
            context = get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, os.getpid()))
            with interrupts_ignored():  # this process decides what becomes of the others
                self._process.start()
            theirs.close()
            return True

    def _died(self) -> Failure:
        with self._lock:
            process, self._process = self._process, None
        assert process
        process.join()
        self._pipe.close()
        return Failure(
            f"its process was killed (exit code {process.exitcode}), most likely for want of "
            "memory: lower jobs."
        )


def _serve(pipe: Connection, parent: int) -> None:
    """Attempt what is asked for until nobody asks any more."""
    _end_with(parent)
    show_warnings_as_messages()
    with (
        listening((signal.SIGTERM,), quiet=True),
        suppress(EOFError, BrokenPipeError, KeyboardInterrupt),
    ):
        while True:
            overrides, wait = pipe.recv()
            pipe.send(attempt(overrides, wait))


def _end_with(parent: int) -> None:
    """Let this process end when its parent is gone: a killed sweep must not train on unseen."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
