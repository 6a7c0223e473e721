"""Memory: how much is used, how much is free, and smaller physical batches when it runs out.

Their size changes the order of sums, hence last digits, and which random numbers examples get.
"""

import ctypes
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import torch

from dpbench.system.errors import UserError

T = TypeVar("T")

MAX_SHARE = 0.8
"""The share of free memory for physical batches; the rest is for the update and everything else."""

RETAINED_BLOCK, RETAINED_TOTAL = 2**28, 2**30
"""Bytes: the largest freed block that a process keeps, and the most that it keeps in total.

Larger blocks would split the heap: with blocks of up to 1 GiB, which differ from step to step as
Poisson batches do, a process of 8 GiB grew to 22.
"""

RETAINED_BLOCK_OF_OLD = 2**25
"""Bytes: the largest block that glibc before 2.35 can be told to keep."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt`, from glibc's malloc.h."""

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
"""Texts in the RuntimeError of CUDA, of torch's CPU allocator, and of cuBLAS.

Where the system overcommits memory, as Linux does by default, the process is killed instead: on a
CPU, only measuring beforehand helps.
"""


def retain_freed_memory() -> None:
    """Let glibc, if it is there, keep the memory of freed tensors for the next step, whose pages
    the system would have to zero."""
    # glibc before 2.35 refuses more than 32 MiB, and then the other call would keep it at 128 KiB.
    if not _glibc("mallopt", M_MMAP_THRESHOLD, RETAINED_BLOCK):
        _glibc("mallopt", M_MMAP_THRESHOLD, RETAINED_BLOCK_OF_OLD)
    _glibc("mallopt", M_TRIM_THRESHOLD, RETAINED_TOTAL)


def _glibc(function: str, *arguments: int) -> int:
    found = getattr(ctypes.CDLL(None), function, None) if sys.platform == "linux" else None
    return found(*arguments) if found is not None else 0


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY)


def run_with_halving(work: Callable[[int], T], size: int) -> tuple[T, int]:
    """Return work(size), with size halved whenever memory runs out, and the size that fitted.

    The work must not have side effects; torch's global generators are reset before each retry.
    Raises UserError where not even a size of 1 fits.
    """
    cpu_state = torch.get_rng_state()
    cuda_state = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    while True:
        try:
            return work(size), size
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if size <= 1:
                raise UserError(
                    "memory runs out even with one example at a time; choose a smaller model or a "
                    "device with more memory."
                ) from error
        # After the except block, whose traceback would keep the tensors alive.
        size //= 2
        torch.set_rng_state(cpu_state)
        if cuda_state is not None:
            torch.cuda.set_rng_state(cuda_state)
            torch.cuda.empty_cache()


def largest_fitting_size(work: Callable[[int], object], most: int, device: torch.device) -> int:
    """The largest of 1, 2, 4, ... and `most` whose work fits in the free memory, found by trying.

    A size is tried only if the memory that the previous size used, scaled up, is free. Raises
    UserError where memory cannot be measured, or one example does not fit.
    """
    check_measurable(device)
    reset_peak(device)
    available, baseline, fitting = MAX_SHARE * free(device), in_use(device), 1
    used = run_with_halving(lambda size: _peak_of(work, size, device), fitting)[0] - baseline
    while fitting < most:
        size = min(2 * fitting, most)
        if used * size / fitting > available:
            break
        try:
            used = _peak_of(work, size, device) - baseline
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            break
        fitting = size
    reset_peak(device)
    return fitting


def _peak_of(work: Callable[[int], object], size: int, device: torch.device) -> int:
    reset_peak(device)
    work(size)
    return peak(device)


def check_measurable(device: torch.device) -> None:
    """Raise UserError where memory cannot be measured."""
    if device.type != "cuda" and (device.type != "cpu" or resident("VmHWM") is None):
        raise UserError(
            f"physical_batch_size=auto cannot measure the memory of {device.type} on this machine; "
            "set it to a number."
        )


def peak(device: torch.device) -> int:
    """Bytes: the most that was in use since `reset_peak`, or by this process so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return resident("VmHWM") or 0


def in_use(device: torch.device) -> int:
    """Bytes in use: by the GPU's allocator, or by this process."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return resident("VmRSS") or 0


def reset_peak(device: torch.device) -> None:
    """Start a new measurement of the peak, where possible, after returning freed memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif resident("VmHWM") is not None:
        _glibc("malloc_trim", 0)
        Path("/proc/self/clear_refs").write_text("5")


def free(device: torch.device) -> int:
    """Bytes still available: on the GPU, or to this process within its control groups."""
    if device.type == "cuda":
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + idle
    return min([_field(Path("/proc/meminfo"), "MemAvailable:"), *_free_in_groups(Path("/"))])


def resident(field: str) -> int | None:
    """Bytes of a field of /proc/self/status; None where there is no such file.

    Not getrusage: on Linux its ru_maxrss survives exec, so a child starts with its parent's peak.
    """
    status = Path("/proc/self/status")
    return _field(status, f"{field}:") if status.exists() else None


def _field(table: Path, name: str) -> int:
    """Bytes of an entry in a table of kB (in /proc) or of bytes (of a control group)."""
    (line,) = (line.split() for line in table.read_text().splitlines() if line.startswith(name))
    return int(line[1]) * (1024 if line[2:] == ["kB"] else 1)


def _free_in_groups(root: Path) -> Iterator[int]:
    """Bytes free under each limit of this process's control groups; page cache counts as free."""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            names = ("memory.max", "memory.current", "")
            yield from _free_in_group(root / "sys/fs/cgroup", path, *names)
        elif controllers == "memory":
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            yield from _free_in_group(root / "sys/fs/cgroup/memory", path, *names)


def _free_in_group(top: Path, path: str, limit: str, usage: str, prefix: str) -> Iterator[int]:
    group = top / path.lstrip("/")
    # In a container the group may be mounted at the top, whatever its path.
    for folder in [group, *group.parents]:
        if folder.is_relative_to(top) and (folder / limit).exists():
            maximum = (folder / limit).read_text().strip()
            if maximum != "max":
                cache = _field(folder / "memory.stat", f"{prefix}inactive_file ")
                yield int(maximum) - int((folder / usage).read_text()) + cache
