"""A process that answers calls over a pipe, one at a time, and ends with the pipe."""

from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from dpbench.system.interrupts import interrupts_ignored


class WorkerDied(Exception):
    """The process ended instead of answering; `exit_code` is its own."""

    def __init__(self, exit_code: int | None):
        super().__init__(exit_code)
        self.exit_code = exit_code


class Worker:
    """The parent's end of the pipe.

    serve: a module-level function that the process executes as serve(pipe, *arguments); it answers
    each message until the pipe is closed.
    """

    def __init__(self, serve: Callable[..., None], *arguments: Any):
        # Spawned, because a forked process inherits torch's thread pools without their threads.
        context = get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=serve, args=(child, *arguments))
        with interrupts_ignored():  # signals are for this process, which ends the other one
            self._process.start()
        child.close()

    def call(self, message: Any, seconds: float | None = None) -> Any:
        """The answer to a message.

        Raises WorkerDied, and TimeoutError if there is no answer within `seconds`.
        """
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
