"""Random streams by purpose: all derived from the seed of a run, each independent of the others."""

import hashlib
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing torch takes seconds, NumPy a tenth of one
    from contextlib import AbstractContextManager

    import numpy as np
    import torch


SECRET = 2**64
"""From here on a seed is a secret: torch takes 32 bits of a seed on a CPU, few enough to try."""

WORDS = slice(24, 24 + 8 * 624)
"""Where the state of torch's generator on a CPU (MT19937) has its words of 32 bits, each in eight
bytes."""


def derived(seed: int, purpose: str) -> int:
    """A number below 2^63, the same in all processes, versions and platforms."""
    digest = hashlib.sha256(f"{purpose}/{seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, purpose: str, device: "torch.device") -> "torch.Generator":
    """A torch generator on the device, for one purpose of one run."""
    import torch

    return seeded(torch.Generator(device), seed, purpose)


def seeded(generator: "torch.Generator", seed: int, purpose: str) -> "torch.Generator":
    """The generator, seeded for one purpose of one run; on a CPU all of its state follows from a
    secret."""
    import numpy as np
    import torch

    generator.manual_seed(derived(seed, purpose))
    if seed >= SECRET and generator.device.type == "cpu":
        words = hashlib.shake_256(f"{purpose}/{seed}".encode()).digest(4 * 624)
        wide = np.frombuffer(words, "<u4").astype("<u8").view(np.uint8)
        state = generator.get_state()
        state[WORDS] = torch.from_numpy(wide)
        generator.set_state(state)
    return generator


def seed_torch(seed: int, device: "torch.device") -> None:
    """Seed torch's default generators of the CPU and of a device.

    torch.manual_seed seeds devices of all kinds and records a stack trace for each kind not yet in
    use, which takes longer than a small step.
    """
    import torch

    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def torch_state(device: "torch.device") -> "torch.Tensor":
    """The state of torch's default generator of a device, which any draw changes."""
    import torch

    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def torch_state_kept(device: "torch.device") -> "AbstractContextManager[None]":
    """The context after which torch's default generators, of the CPU and of a device, are as they
    were."""
    import torch

    return torch.random.fork_rng([device] if device.type == "cuda" else [])


def numpy_generator(seed: int, purpose: str) -> "np.random.Generator":
    """A NumPy generator for one purpose: the same draws for every method and on every machine."""
    import numpy as np

    return np.random.default_rng([seed, zlib.crc32(purpose.encode())])
