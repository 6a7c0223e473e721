"""Where and how a run was carried out."""

import functools
import platform
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import dpbench
from dpbench.step import PrivateStep

PACKAGES = ("torch", "numpy", "dp-accounting", "opacus")


def provenance(step: PrivateStep, device: torch.device, precision: str, seconds: float) -> dict:
    """Commit, versions, device, engine, precision, seconds, and peak memory in MiB, all plain."""
    return {
        "commit": commit(),
        "dpbench": dpbench.__version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "device": _describe(device),
        "threads": torch.get_num_threads(),
        "engine": step.engine.name,
        "physical_batch_size": step.physical_batch_size,
        "precision": precision,
        "seconds": round(seconds, 3),
        "peak_memory_mib": round(_peak_memory(device) / 2**20),
    }


@functools.cache
def commit() -> str | None:
    """The commit of the checkout that this code runs from, with a + if it was changed since."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        head = git("rev-parse", "--short=12", "HEAD")
        tracked = head and git("ls-files", "--error-unmatch", __file__)
        changed = tracked and git("status", "--porcelain", "--untracked-files=no", "--", str(here))
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
