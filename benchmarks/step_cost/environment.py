"""The environment of a measurement."""

import os
import platform
import re
from pathlib import Path

import torch

from dpbench.runs.training.provenance import commit, installed_version

PACKAGES = ("torch", "opacus", "opake", "jax", "jax_privacy")


def environment(device: str) -> str:
    """Machine, versions and commit, in one line."""
    gpu = [torch.cuda.get_device_name(), f"CUDA {torch.version.cuda}"] if device == "cuda" else []
    processor = f"{_processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    installed = [f"{name} {number}" for name in PACKAGES if (number := installed_version(name))]
    python = f"Python {platform.python_version()}"
    return "; ".join([*gpu, processor, python, *installed, f"dpbench {commit() or 'unknown'}"])


def processor_name(device: str) -> str:
    """The first two words of what steps are timed on, for names of files: amd_epyc."""
    full = torch.cuda.get_device_name() if device == "cuda" else _processor()
    words = re.findall(r"[a-z0-9]+", re.sub(r"\((r|tm)\)", " ", full.lower()))
    return "_".join(words[:2])


def load_per_core() -> float:
    """The number of processes that ran or waited in the last minute, by core."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def _processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
