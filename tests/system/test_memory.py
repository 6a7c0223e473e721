"""Memory: what is measured, what is concluded from it, and what happens when it runs out."""

import platform
import subprocess
import sys

import pytest
import torch

from dpbench.system import memory
from dpbench.system.errors import UserError
from dpbench.system.memory import (
    check_measurable,
    free,
    in_use,
    is_out_of_memory,
    largest_fitting_size,
    peak,
    run_with_halving,
)

CPU = torch.device("cpu")
MIB = 2**20

measured = pytest.mark.skipif(memory.resident("VmHWM") is None, reason="needs Linux's /proc")


def test_only_errors_of_an_allocator_are_taken_for_lack_of_memory():
    with pytest.raises(RuntimeError) as told:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(told.value)
    assert is_out_of_memory(
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    )
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate")
    )
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("out of memory"))


def holding(most: int, error=torch.OutOfMemoryError):
    """Work that fits up to a size, the sizes it was asked for, and what it drew."""
    sizes: list[int] = []

    def work(size: int) -> torch.Tensor:
        sizes.append(size)
        draw = torch.rand(3)
        if size > most:
            raise error("out of memory")
        return draw

    return work, sizes


@pytest.mark.parametrize(("start", "tried"), [(13, [13, 6, 3]), (3, [3]), (0, [0])])
def test_sizes_are_halved_until_one_fits(start, tried):
    work, sizes = holding(4)
    _, fitted = run_with_halving(work, start)
    assert sizes == tried
    assert fitted == tried[-1]


def test_a_retry_repeats_the_draws_of_the_first_attempt():
    torch.manual_seed(0)
    expected, state = torch.rand(3), torch.get_rng_state()
    torch.manual_seed(0)
    drawn, _ = run_with_halving(holding(1)[0], 8)
    assert torch.equal(drawn, expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_memory_is_freed_before_a_retry():
    class Large:
        alive = 0

        def __init__(self):
            Large.alive += 1

        def __del__(self):
            Large.alive -= 1

    def work(size: int) -> int:
        before, kept = Large.alive, [Large() for _ in range(size)]
        if len(kept) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return before

    assert run_with_halving(work, 8) == (0, 2)


def test_failing_with_one_example_is_one_sentence():
    with pytest.raises(UserError, match="even with one example at a time; choose a smaller model"):
        run_with_halving(holding(0)[0], 8)


def largest_of(monkeypatch, room: int, taken, most: int, holds: int = 10**9) -> tuple[int, list]:
    """The size found where `room` bytes are free and n examples take taken(n), and those tried."""
    work, sizes = holding(holds)
    monkeypatch.setattr(memory, "free", lambda _: room)
    monkeypatch.setattr(memory, "in_use", lambda _: 1000)
    monkeypatch.setattr(memory, "peak", lambda _: 1000 + taken(sizes[-1]))
    monkeypatch.setattr(memory, "check_measurable", lambda _: None)
    return largest_fitting_size(work, most, CPU), sizes


@pytest.mark.parametrize(
    ("room", "most", "found", "tried"),
    [
        (10**9, 100, 100, [1, 2, 4, 8, 16, 32, 64, 100]),
        (1000, 100, 8, [1, 2, 4, 8]),  # 16 would take 1600, 8 takes the 800 that may be taken
        (999, 100, 4, [1, 2, 4]),
        (1250, 10, 10, [1, 2, 4, 8, 10]),
        (1, 100, 1, [1]),  # one at a time is tried, whatever it takes
        (10**9, 1, 1, [1]),
    ],
)
def test_sizes_double_while_the_next_is_likely_to_fit(monkeypatch, room, most, found, tried):
    assert largest_of(monkeypatch, room, lambda n: 100 * n, most) == (found, tried)


def test_one_example_that_does_not_fit_and_unexpected_failures_end_a_search(monkeypatch):
    assert largest_of(monkeypatch, 10**9, lambda n: 0, 100, holds=20) == (16, [1, 2, 4, 8, 16, 32])
    with pytest.raises(UserError, match="even with one example at a time"):
        largest_of(monkeypatch, 10**9, lambda n: n, 100, holds=0)


@measured
def test_the_peak_on_a_cpu_is_since_the_last_reset():
    rest = in_use(CPU)

    def work(mebibytes: int) -> None:
        torch.ones(mebibytes * MIB, dtype=torch.uint8)

    for mebibytes in (256, 64):
        taken = memory._peak_of(work, mebibytes, CPU) - rest
        assert taken == pytest.approx(mebibytes * MIB, abs=8 * MIB)
    memory.reset_peak(CPU)
    assert peak(CPU) - rest < 8 * MIB


@measured
def test_the_size_found_stays_within_its_share_of_memory(monkeypatch):
    """8 MiB per example and 200 MiB free: 16 examples take 128, and 32 would take 256.

    8 is found where a busy machine made the process look larger than it is.
    """
    monkeypatch.setattr(memory, "free", lambda _: 200 * MIB)
    assert largest_fitting_size(
        lambda n: torch.ones(8 * n * MIB, dtype=torch.uint8), 1000, CPU
    ) in (8, 16)


@measured
def test_free_memory_is_less_than_that_of_the_machine():
    assert 0 < free(CPU) <= memory._field(memory.Path("/proc/meminfo"), "MemTotal:")


def written(root, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_every_parent_control_group_may_limit_memory(tmp_path):
    stat = "inactive_anon 7\ninactive_file 100\nactive_file 9\n"
    written(tmp_path, {"proc/self/cgroup": "0::/user/job/step\n"})
    for folder, most, usage in [
        ("", "5000", "0"),
        ("user/", "max", "3"),
        ("user/job/", "2000", "1500"),
    ]:
        top = f"sys/fs/cgroup/{folder}"
        written(tmp_path, {f"{top}memory.max": most, f"{top}memory.current": usage})
        written(tmp_path, {f"{top}memory.stat": stat})
    assert list(memory._free_in_groups(tmp_path)) == [600, 5100]


def test_version_1_of_control_groups_is_read(tmp_path):
    written(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/not/mounted/here\n3:cpuset:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
            "sys/fs/cgroup/memory/memory.stat": "inactive_file 5\ntotal_inactive_file 20\n",
        },
    )
    assert list(memory._free_in_groups(tmp_path)) == [3020]


def test_without_a_measurement_a_number_is_required(monkeypatch):
    with pytest.raises(UserError, match="cannot measure the memory of mps on this machine; set"):
        check_measurable(torch.device("mps"))
    monkeypatch.setattr(memory, "resident", lambda _: None)
    with pytest.raises(UserError, match="cannot measure the memory of cpu"):
        check_measurable(CPU)
    check_measurable(torch.device("cuda"))


REPEATED = """
import resource, torch
from dpbench.system import memory
{first}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    for _ in range(10):
        torch.ones(10 * 2**20)
work()
before = faults()
work()
print(faults() - before)
memory.reset_peak(torch.device("cpu"))
print(memory.in_use(torch.device("cpu")))
"""


def faults_and_memory_in_use(first: str) -> list[int]:
    ran = subprocess.run(
        [sys.executable, "-c", REPEATED.format(first=first)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(line) for line in ran.stdout.split()]


@pytest.mark.long
@measured
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_kept_for_the_next_step():
    returned, in_use_then = faults_and_memory_in_use("")
    retained, in_use_now = faults_and_memory_in_use("memory.retain_freed_memory()")
    assert returned > 100  # ten blocks of 40 MiB, in pages of 4 KiB or 2 MiB
    assert retained < returned / 10
    assert in_use_now < in_use_then + 10 * MIB


@pytest.mark.parametrize("most", [2**25, memory.RETAINED_BLOCK])
def test_old_glibc_keeps_smaller_blocks(most, monkeypatch):
    kept = {}

    def mallopt(function, parameter, value):
        accepted = parameter != memory.M_MMAP_THRESHOLD or value <= most
        kept.update({parameter: value} if accepted else {})
        return int(accepted)

    monkeypatch.setattr(memory, "_glibc", mallopt)
    memory.retain_freed_memory()
    trimmed = {memory.M_TRIM_THRESHOLD: memory.RETAINED_TOTAL}
    assert kept == {memory.M_MMAP_THRESHOLD: most} | trimmed
