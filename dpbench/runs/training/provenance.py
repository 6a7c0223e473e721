"""Provenance: the code, software, hardware and resources of a run."""

import functools
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version

import torch

from dpbench.runs.records.code import checksum_of
from dpbench.step.mechanism.graph_step import GraphStep
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system import memory
from dpbench.system.paths import PACKAGE
from dpbench.system.version import __version__

PACKAGES = ("torch", "numpy", "dp-accounting", "opacus")


class ResourceUsage:
    """Seconds and peak memory of a run, over all processes that executed it. Excludes what a killed
    process did after its last checkpoint."""

    def __init__(self, device: torch.device):
        self._device, self._start = device, time.perf_counter()
        self._seconds, self._peak, self.resumed = 0.0, 0, 0

    @property
    def seconds(self) -> float:
        return self._seconds + time.perf_counter() - self._start

    @property
    def peak_memory(self) -> int:
        """Bytes."""
        return max(self._peak, memory.peak(self._device))

    def state_dict(self) -> dict:
        return {"seconds": self.seconds, "peak": self.peak_memory, "resumed": self.resumed}

    def load_state_dict(self, state: dict) -> None:
        self._seconds, self._peak = state["seconds"], state["peak"]
        self.resumed = state["resumed"] + 1


def provenance(
    step: PrivateStep, device: torch.device, precision: str, usage: ResourceUsage
) -> dict:
    """Commit, versions, device, engine, precision, seconds, and peak memory in MiB, all plain.

    engine_reason: why the engine is not the preferred one. graph: how many steps were graphs, if
    asked. resumed: how often. weights: the checksum of the file with the initial weights.
    """
    model = f"{platform.processor() or platform.machine()} ({device.type})"
    if device.type == "cuda":
        model = torch.cuda.get_device_name(device)
    weights = getattr(step.engine.model, "checksum", None)
    reason = getattr(step.engine, "reason", "")
    return {
        "commit": commit(),
        "code": code(),
        "dpbench": __version__,
        "python": platform.python_version(),
        **{name: installed_version(name) for name in PACKAGES},
        "device": model,
        "threads": torch.get_num_threads(),
        "engine": step.engine.name,
        **({"engine_reason": reason} if reason else {}),
        **({"graph": step.said} if isinstance(step, GraphStep) else {}),
        "physical_batch_size": step.physical.size,
        "precision": precision,
        **({"weights": weights} if weights else {}),
        "seconds": round(usage.seconds, 3),
        "peak_memory_mib": round(usage.peak_memory / 2**20),
        "resumed": usage.resumed,
    }


def conditions(engine: str, device: torch.device) -> dict:
    """What the exact bits of a run depend on, besides its settings and code, as plain values."""
    of_order = {  # in which a CPU adds
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }
    return {
        "dpbench": __version__,
        **{name: installed_version(name) for name in ("torch", "numpy")},
        "engine": engine,
        "device": device.type,
        **(of_order if device.type == "cpu" else {}),
    }


@functools.cache
def code() -> str:
    """Twelve hex digits of a checksum of the library's source, committed or not."""
    files = sorted(PACKAGE.rglob("*.py"))
    return checksum_of({path.relative_to(PACKAGE): path.read_bytes() for path in files})


@functools.cache
def commit() -> str | None:
    """The commit of the checkout that this code runs from, with a + if it has local changes."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        head = git("rev-parse", "--short=12", "HEAD")
        tracked = head and git("ls-files", "--error-unmatch", __file__)
        changed = tracked and git("status", "--porcelain", "--", str(PACKAGE))
    except FileNotFoundError:
        return None
    return f"{head}{'+' if changed else ''}" if tracked else None


def installed_version(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
