"""Where and how a run was carried out."""

import functools
import hashlib
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import torch

import dpbench
from dpbench.mechanism.step import PrivateStep
from dpbench.paths import PACKAGE

PACKAGES = ("torch", "numpy", "dp-accounting", "opacus")


class Effort:
    """Seconds and peak memory of a run, over all the processes that it was carried out in.

    What a killed process did after its last checkpoint is not in it.
    """

    def __init__(self, device: torch.device):
        self._device, self._start = device, time.perf_counter()
        self._seconds, self._peak, self.resumed = 0.0, 0, 0

    @property
    def seconds(self) -> float:
        return self._seconds + time.perf_counter() - self._start

    @property
    def peak_memory(self) -> int:
        """Bytes."""
        return max(self._peak, _peak_memory(self._device))

    def state_dict(self) -> dict:
        return {"seconds": self.seconds, "peak": self.peak_memory, "resumed": self.resumed}

    def load_state_dict(self, state: dict) -> None:
        self._seconds, self._peak = state["seconds"], state["peak"]
        self.resumed = state["resumed"] + 1


def provenance(step: PrivateStep, device: torch.device, precision: str, effort: Effort) -> dict:
    """Commit, versions, device, engine, precision, seconds, and peak memory in MiB, all plain.

    resumed: how often another process went on with the run. weights: the checksum of the file that
    the model had its first weights from, if there was one.
    """
    weights = getattr(step.engine.model, "checksum", None)
    return {
        "commit": commit(),
        "code": code(),
        "dpbench": dpbench.__version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "device": _describe(device),
        "threads": torch.get_num_threads(),
        "engine": step.engine.name,
        "physical_batch_size": step.physical_batch_size,
        "precision": precision,
        **({"weights": weights} if weights else {}),
        "seconds": round(effort.seconds, 3),
        "peak_memory_mib": round(effort.peak_memory / 2**20),
        "resumed": effort.resumed,
    }


def conditions(engine: str, device: torch.device) -> dict:
    """What steps depend on to the last bit, beside what a run is: all plain."""
    return {
        "dpbench": dpbench.__version__,
        "code": code(),
        **{name: _version(name) for name in ("torch", "numpy")},
        "engine": engine,
        "device": device.type,
        **(_of_cpu() if device.type == "cpu" else {}),
    }


def _of_cpu() -> dict:
    """What decides in which order a CPU adds up."""
    instructions = torch.backends.cpu.get_cpu_capability()
    return {"threads": torch.get_num_threads(), "instructions": instructions}


@functools.cache
def code() -> str:
    """Twelve hex digits of the library's source: one commit may have many."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def commit() -> str | None:
    """The commit of the checkout that this code runs from, with a + if it was changed since."""

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


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _describe(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()} ({device.type})"


def _peak_memory(device: torch.device) -> int:
    """Bytes: of the GPU's allocator, or of this process so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
