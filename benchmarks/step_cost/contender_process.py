"""A contender in a process of its own, which is called over a pipe and waits between calls."""

import gc
import math
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from dpbench.runs.execution.launcher import Worker, WorkerDied
from dpbench.system.errors import first_line
from dpbench.system.interrupts import exit_sooner
from dpbench.system.memory import reset_peak, resident, retain_freed_memory

from .cases import CannotBeTimed, Case
from .check import Observation, observe
from .stepper import Stepper

Make = Callable[[Case, torch.device], Stepper]

WARM_UP = 3
VISIT_SECONDS = 0.02
"""What a contender runs at once, unless a single step takes longer."""
PATIENCE = 600.0
"""Seconds to wait for the result of a call."""
GRACE = 10.0
"""Seconds for a process to end."""


class ContenderError(Exception):
    """Why a contender failed, as the end of a sentence."""


class ContenderProcess:
    """A contender on a case, in a process of its own."""

    def __init__(self, make: Make, case: Case, device: str):
        self._worker = Worker(_serve, make, case, device)

    def call(self, method: str) -> Any:
        """The result of a method of `TimedStepper`; ContenderError if it failed."""
        try:
            result = self._worker.call(method, PATIENCE)
        except TimeoutError:
            raise ContenderError(f"no answer within {PATIENCE:.0f} s") from None
        except WorkerDied as died:
            raise ContenderError(f"its process ended with code {died.exit_code}") from None
        if isinstance(result, ContenderError):
            raise result
        return result

    def close(self) -> None:
        """End the process."""
        self._worker.close(GRACE)


class TimedStepper:
    """The child's end of the pipe: measures one stepper."""

    def __init__(self, make: Make, case: Case, device: torch.device):
        self._make, self._case, self._device = make, case, device
        self._stepper = make(case, device)
        gc.collect()  # what tried the engine is in cycles
        reset_peak(device)  # so that freed memory is not part of the baseline
        self._baseline = resident("VmRSS")
        self._steps = 1

    def observe(self) -> Observation:
        """The update and the scale of the noise; see `check`."""
        return observe(self._stepper, self._case.batch_size)

    def warm_up(self) -> int:
        """Time warm-up steps, and choose the number of steps per visit by them, or by the case."""
        reset_peak(self._device)  # without the memory of the check
        seconds = self._run(1)
        if seconds < VISIT_SECONDS:
            seconds = self._run(WARM_UP)
        self._steps = self._case.epoch or max(1, math.ceil(VISIT_SECONDS / seconds))
        return self._steps

    def visit(self) -> float:
        """Seconds per step of one visit, after half as many steps that do not count.

        These find caches and threads as the others left them, which no step of a training does. In
        a case with sizes that are new to a run, all steps of a new stepper count.
        """
        if self._case.epoch:
            self._stepper = self._make(self._case, self._device)
            return self._run(self._steps)
        self._run(math.ceil(self._steps / 2))
        return self._run(self._steps)

    def memory(self) -> int | None:
        """Bytes: the GPU allocator's peak, or how far the resident set grew over model and data."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        peak = resident("VmHWM")
        return None if peak is None or self._baseline is None else peak - self._baseline

    def _run(self, steps: int) -> float:
        self._stepper.wait()
        start = time.perf_counter()
        for _ in range(steps):
            self._stepper()
        self._stepper.wait()
        return (time.perf_counter() - start) / steps


def _serve(pipe: Connection, make: Make, case: Case, device: str) -> None:
    """Execute calls until the parent closes the pipe, or one fails."""
    exit_sooner()
    warnings.simplefilter("ignore")
    retain_freed_memory()
    # TF32 would make convolutions differ between contenders by more than the check allows.
    torch.backends.cudnn.allow_tf32 = False
    stepper: TimedStepper | None = None
    try:
        while True:
            method = pipe.recv()
            stepper = stepper or TimedStepper(make, case, torch.device(device))
            pipe.send(getattr(stepper, method)())
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        pipe.send(ContenderError(reason(error)))


def reason(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, CannotBeTimed):
        return str(error)
    if isinstance(error, ImportError):
        return f"not installed ({error})"
    if isinstance(error, torch.OutOfMemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {first_line(error, 'no message')}"
