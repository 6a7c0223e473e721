"""The interface of launchers, which execute many runs, the outcomes of runs, and the processes that
answer calls."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dpbench.system.interrupts import interrupts_ignored

R = TypeVar("R", contravariant=True)


@dataclass(frozen=True)
class Failure:
    """Why a run has no record.

    reason: a sentence. trace: the traceback of an unexpected error. busy: another process is
    executing the run. unavailable: data or weights are missing on this machine and cannot be
    downloaded.
    """

    reason: str
    trace: str = ""
    busy: bool = False
    unavailable: bool = False


Outcome = Path | Failure


Attempts = Callable[[Sequence[R], bool], Iterator[tuple[int, Outcome]]]
"""From runs to the index and the outcome of each, in the order in which they end.

The flag says whether to wait for a run that another process is executing.
"""


class Launcher(Protocol[R]):
    """Executes many runs somewhere."""

    def start(self, jobs: int, folder: Path) -> AbstractContextManager[Attempts[R]]:
        """A function that executes runs; those that are still running on exit are stopped. jobs:
        processes, if the launcher can choose. folder: for its own files. UserError if it is not
        available."""


class WorkerDied(Exception):
    """The process ended instead of answering; `exit_code` is its own."""

    def __init__(self, exit_code: int | None):
        super().__init__(exit_code)
        self.exit_code = exit_code


class Worker:
    """The parent's end of the pipe. serve: a module-level function that the process executes as
    serve(pipe, *arguments); it answers each message until the pipe is closed."""

    def __init__(self, serve: Callable[..., None], *arguments: Any):
        # Spawned, because a forked process inherits torch's thread pools without their threads.
        context = get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=serve, args=(child, *arguments))
        with interrupts_ignored():  # signals are for this process, which ends the other one
            self._process.start()
        child.close()

    def call(self, message: Any, seconds: float | None = None) -> Any:
        """The answer to a message. Raises WorkerDied, and TimeoutError if there is no answer within
        `seconds`."""
        try:
            self._pipe.send(message)
            if self._pipe.poll(seconds):
                return self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            self._pipe.close()
            raise WorkerDied(self._process.exitcode) from None
        raise TimeoutError

    def terminate(self) -> None:
        """Send the process SIGTERM."""
        self._process.terminate()

    def wait_or_kill(self, seconds: float) -> None:
        """Wait for the process to end, and kill it after that time."""
        self._process.join(max(0.0, seconds))
        self._process.kill()
        self._process.join()

    def close(self, seconds: float) -> None:
        """Close the pipe, which ends the process, or kill it after that time."""
        self._pipe.close()
        self.wait_or_kill(seconds)
