"""How much memory work takes, how much there is, and what to do when it runs out.

A physical batch size never changes what a step is: only the order in which its parts are added up,
and with it the last digits (and, where a model draws random numbers, which ones each example gets).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import torch

from dpbench.errors import UserError

T = TypeVar("T")

SHARE = 0.8
"""Of the free memory that physical batches may take: the rest is for the update and for others."""

SIGNS = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
"""What a RuntimeError says when memory ran out: of CUDA, of torch's CPU allocator, of CUDA's BLAS.

Where the system promises more memory than it has, as Linux does by default, a process is killed
instead: on a CPU it is the measurement beforehand that protects, not the error.
"""


def ran_out(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def halving(work: Callable[[int], T], size: int) -> tuple[T, int]:
    """work(size), or work of half the size each time memory runs out, and the size that fitted.

    The work must change nothing that outlives it; torch's own generators are put back before it is
    done again. Raises UserError where not even a size of 1 fits.
    """
    draws = torch.get_rng_state(), _cuda_draws()
    while True:
        try:
            return work(size), size
        except Exception as error:
            if not ran_out(error):
                raise
            if size <= 1:
                raise UserError(
                    "memory runs out even with one example at a time; choose a smaller model or a "
                    "device with more memory."
                ) from error
        # Only here is the error gone, and with it the frames that held what filled the memory.
        size //= 2
        torch.set_rng_state(draws[0])
        if draws[1] is not None:
            torch.cuda.set_rng_state(draws[1])
            torch.cuda.empty_cache()


def _cuda_draws() -> torch.Tensor | None:
    return torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None


def largest(work: Callable[[int], object], most: int, device: torch.device) -> int:
    """The largest of 1, 2, 4, ... and `most` whose work fits in the free memory, by trying them.

    A size is tried if it fits by what the size before it took, scaled up. Raises UserError where
    memory cannot be measured, or one example does not fit.
    """
    check_measurable(device)
    room, rest, fitting = SHARE * free(device), in_use(device), 1
    taken = halving(lambda size: _taken(work, size, device), fitting)[0] - rest
    while fitting < most:
        size = min(2 * fitting, most)
        if taken * size / fitting > room:
            break
        try:
            taken = _taken(work, size, device) - rest
        except Exception as error:
            if not ran_out(error):
                raise
            break
        fitting = size
    forget_peak(device)
    return fitting


def _taken(work: Callable[[int], object], size: int, device: torch.device) -> int:
    forget_peak(device)
    work(size)
    return peak(device)


def check_measurable(device: torch.device) -> None:
    """Raise UserError where memory cannot be measured."""
    if device.type != "cuda" and (device.type != "cpu" or resident("VmHWM") is None):
        raise UserError(
            f"physical_batch_size=auto cannot measure the memory of {device.type} on this machine; "
            "give it a number."
        )


def peak(device: torch.device) -> int:
    """Bytes: the most that was in use since `forget_peak`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resident("VmHWM") or 0


def in_use(device: torch.device) -> int:
    """Bytes: of the GPU's allocator, or of this process."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return resident("VmRSS") or 0


def forget_peak(device: torch.device) -> None:
    """Count peaks from here on, where they can be counted."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif resident("VmHWM") is not None:
        Path("/proc/self/clear_refs").write_text("5")


def free(device: torch.device) -> int:
    """Bytes still available: on the GPU, or by this process within its control groups."""
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
    """Bytes of an entry in a table of kB (of /proc), or of bytes (of a control group)."""
    (line,) = (line.split() for line in table.read_text().splitlines() if line.startswith(name))
    return int(line[1]) * (1024 if line[2:] == ["kB"] else 1)


def _free_in_groups(root: Path) -> Iterator[int]:
    """What each limit of this process's control groups leaves; the page cache can be given up."""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            yield from _left(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "")
        elif controllers == "memory":
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            yield from _left(root / "sys/fs/cgroup/memory", path, *names)


def _left(top: Path, path: str, limit: str, usage: str, prefix: str) -> Iterator[int]:
    own = top / path.lstrip("/")
    # Inside a container the group's own folder may be the top one, whatever its path says.
    for folder in [own, *own.parents]:
        if folder.is_relative_to(top) and (folder / limit).exists():
            most = (folder / limit).read_text().strip()
            if most != "max":
                cache = _field(folder / "memory.stat", f"{prefix}inactive_file ")
                yield int(most) - int((folder / usage).read_text()) + cache
