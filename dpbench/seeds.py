"""Random streams by purpose: one seed makes a run, and no stream depends on another's use."""

import hashlib

import torch


def derived(seed: int, purpose: str) -> int:
    """A number below 2^63 that is stable over processes, versions and platforms."""
    digest = hashlib.sha256(f"{purpose}/{seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, purpose: str, device: torch.device) -> torch.Generator:
    """A torch generator on the device, for one purpose of one run."""
    return torch.Generator(device).manual_seed(derived(seed, purpose))
