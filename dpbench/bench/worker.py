"""A contender in a process of its own, which does what it is told over a pipe and else waits."""

import math
import multiprocessing
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from dpbench.bench.cases import Case, UnavailableError
from dpbench.bench.check import Observation, observe
from dpbench.bench.stepper import Stepper
from dpbench.memory import reset_peak, resident
from dpbench.training.interrupts import interrupts_ignored

Make = Callable[[Case, torch.device], Stepper]

WARM_UP = 3
REPEAT_SECONDS = 0.1
PATIENCE = 600.0
"""Seconds after which a process that has not answered is given up."""


class WorkerError(Exception):
    """Why a contender cannot go on, as the end of a sentence."""


class ContenderProcess:
    """The parent's end: questions are names of methods of `Contestant`."""

    def __init__(self, make: Make, case: Case, device: str):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, case, device))
        with interrupts_ignored():  # Ctrl-C is for this process, which ends the other one
            self._process.start()
        theirs.close()

    def ask(self, question: str) -> Any:
        """The answer; raises WorkerError where there is none."""
        try:
            self._pipe.send(question)
            if not self._pipe.poll(PATIENCE):
                raise WorkerError(f"no answer within {PATIENCE:.0f} s")
            answer = self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._process.join()
            raise WorkerError(f"its process ended with code {self._process.exitcode}") from None
        if isinstance(answer, WorkerError):
            raise answer
        return answer

    def close(self) -> None:
        """Hang up, which ends the process, and end it by force where that takes too long."""
        self._pipe.close()
        self._process.join(10)
        self._process.kill()
        self._process.join()


class Contestant:
    """The child's end: one stepper, asked one thing at a time."""

    def __init__(self, make: Make, case: Case, device: torch.device):
        self._case, self._device = case, device
        self._stepper = make(case, device)
        self._rest = resident("VmRSS")
        self._steps = 1

    def observe(self) -> Observation:
        """What it computes; see `check`."""
        return observe(self._stepper, self._case.batch_size)

    def warm_up(self) -> int:
        """How many steps make a repeat, found after some that do not count."""
        reset_peak(self._device)  # the check's own memory is not to count
        seconds = self._run(1)
        if seconds < REPEAT_SECONDS:
            seconds = self._run(WARM_UP)
        self._steps = max(1, math.ceil(REPEAT_SECONDS / seconds))
        return self._steps

    def repeat(self) -> float:
        """Seconds per step of one repeat."""
        return self._run(self._steps)

    def memory(self) -> int | None:
        """Bytes: the GPU allocator's peak, or how far the resident set grew over model and data."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        peak = resident("VmHWM")
        return None if peak is None or self._rest is None else peak - self._rest

    def _run(self, steps: int) -> float:
        self._stepper.wait()
        start = time.perf_counter()
        for _ in range(steps):
            self._stepper()
        self._stepper.wait()
        return (time.perf_counter() - start) / steps


def _serve(pipe: Connection, make: Make, case: Case, device: str) -> None:
    """Answer until the parent hangs up, or until something fails."""
    warnings.simplefilter("ignore")
    # TF32 would make convolutions differ between contenders by more than the check allows.
    torch.backends.cudnn.allow_tf32 = False
    contestant: Contestant | None = None
    try:
        while True:
            question = pipe.recv()
            contestant = contestant or Contestant(make, case, torch.device(device))
            pipe.send(getattr(contestant, question)())
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        pipe.send(WorkerError(_reason(error)))


def _reason(error: Exception) -> str:
    """One line."""
    if isinstance(error, UnavailableError):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError):
        return "out of memory"
    first = (str(error).strip() or "no message").splitlines()[0]
    return f"{type(error).__name__}: {first}"
