"""The random streams that privacy depends on: noise of gradients and of counts, and sampling.

Each run has one per purpose, shared with no other run: composition covers the joint release of two
runs only if their noise and batches are independent. Public ones are in `dpbench.system.seeds`.
"""

import hashlib
import secrets
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from dpbench.step.mechanism import chacha
from dpbench.system.errors import UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

BLOCK = 16
"""Bytes of an AES block."""

WORD = 8
"""Bytes of one draw."""

AHEAD = 2**15
"""Draws that `CipherStream.mapped` makes at once, at most."""

ZEROS = memoryview(bytes(2**20))
"""What the cipher turns into its key stream: kept, as to clear memory again takes long."""


class Stream(Protocol):
    """A source of random bits whose state can be saved and restored."""

    @property
    def device(self) -> torch.device:
        """The device of the generated bits."""

    def bits(self, size: int) -> Tensor:
        """Independent draws [size] int64, uniform over all 2^64 values."""

    def derived(self, purpose: str) -> "Stream":
        """An independent stream, whatever the position of this one."""

    def state_dict(self) -> dict:
        """Key and position. As sensitive as the data: anyone who has them can remove the noise."""

    def load_state_dict(self, state: dict) -> None: ...


Transform = Callable[[np.ndarray, "Stream"], np.ndarray]
"""Maps words [n] int64 of a stream, each by itself, to numbers [n]."""


class Ahead(NamedTuple):
    """Draws that are mapped before they are asked for; first: the position of the first one."""

    by: Transform | None
    first: int
    values: np.ndarray


NONE_AHEAD = Ahead(None, 0, np.empty(0))


class CipherStream:
    """The key stream of AES-256 in counter mode, on the CPU by OpenSSL: a cryptographic generator.
    key: 32 bytes, without which it is indistinguishable from random bits."""

    device = torch.device("cpu")

    def __init__(self, key: bytes):
        self._key, self._drawn = key, 0
        self._ahead = NONE_AHEAD

    def bits(self, size: int) -> Tensor:
        # The library requires room for one more block.
        out = np.empty(size + BLOCK // WORD, np.int64)
        zeros = ZEROS[: WORD * size] if WORD * size <= len(ZEROS) else bytes(WORD * size)
        self._cipher.update_into(zeros, out.view(np.uint8).data)
        self._drawn += size
        return torch.from_numpy(out[:size])

    def mapped(self, size: int, by: Transform) -> np.ndarray:
        """by(bits) of the next draws [size], read-only; if all that were mapped before have been
        drawn, twice as many are, up to AHEAD, as calls take longer than the work."""
        position, ahead = self._drawn, self._ahead
        start = position - ahead.first
        if ahead.by is not by or not 0 <= start <= len(ahead.values) - size:
            used_up = 0 <= start <= len(ahead.values)
            count = min(2 * len(ahead.values), AHEAD) if used_up else 0
            words = self.bits(max(size, count)).numpy()
            values = by(words, self)
            values.setflags(write=False)
            self._ahead, start = Ahead(by, position, values), 0
        self._drawn = position + size
        self.__dict__.pop("_cipher", None)
        return self._ahead.values[start : start + size]

    @cached_property
    def _cipher(self) -> "CipherContext":
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        block, skipped = divmod(WORD * self._drawn, BLOCK)
        counter = modes.CTR(block.to_bytes(BLOCK, "big"))
        cipher = Cipher(algorithms.AES256(self._key), counter).encryptor()
        cipher.update(bytes(skipped))
        return cipher

    def derived(self, purpose: str) -> "CipherStream":
        return CipherStream(hashlib.sha256(self._key + purpose.encode()).digest())

    def state_dict(self) -> dict:
        return {"key": self._key.hex(), "drawn": self._drawn}

    def load_state_dict(self, state: dict) -> None:
        self._key, self._drawn = bytes.fromhex(state["key"]), state["drawn"]
        self._ahead = NONE_AHEAD
        self.__dict__.pop("_cipher", None)


class GpuStream:
    """The key stream of ChaCha20, made on a GPU: a cryptographic generator without tables, each of
    whose words depends on the key and its own place alone.

    key: 32 bytes; without it the stream is indistinguishable from random bits.
    place: 0 [] int64, from which places of draws are counted.
    """

    _scalar: tuple[float, Tensor] | None = None

    def __init__(self, key: bytes, device: torch.device):
        self._key, self._drawn, self.device = key, 0, device
        self.key = chacha.key_words(key, device)
        self.place = torch.zeros((), dtype=torch.int64, device=device)

    def scalar(self, number: float) -> Tensor:
        """A number as a float64 scalar on the GPU, kept until another is asked for."""
        if self._scalar is None or self._scalar[0] != number:
            of = torch.full((), number, dtype=torch.float64, device=self.device)
            self._scalar = number, of
        return self._scalar[1]

    def taken(self, size: int) -> int:
        """The place of the first of the next draws [size], which are then over."""
        first, self._drawn = self._drawn, self._drawn + size
        return first

    def bits(self, size: int) -> Tensor:
        return chacha.words(self.key, 0, self.taken(size), size)

    def bits_and_further(self, size: int) -> tuple[Tensor, Tensor]:
        """`bits`, and as many of another key stream in the same places."""
        first = self.taken(size)
        return chacha.words(self.key, 0, first, size), chacha.words(self.key, 1, first, size)

    def derived(self, purpose: str) -> "GpuStream":
        return GpuStream(hashlib.sha256(self._key + purpose.encode()).digest(), self.device)

    def state_dict(self) -> dict:
        return {"key": self._key.hex(), "drawn": self._drawn}

    def load_state_dict(self, state: dict) -> None:
        if "key" not in state:
            raise UserError(
                "the checkpoint is of an earlier version of dpbench, whose noise on a GPU was "
                "another: delete the checkpoint to start the run again."
            )
        self._key, self._drawn = bytes.fromhex(state["key"]), state["drawn"]
        self.key = chacha.key_words(self._key, self.device)


class DrawnStream(CipherStream):
    """A stream of which the next draws of a law [n] float64 are known, for a step that is
    captured."""

    def __init__(self, draws: Tensor):
        self.draws = draws


class PlacedStream(GpuStream):
    """A stream that continues from a place [] int64 of a key stream, for a step that is captured:
    no place is in the graph, which would draw the same noise again."""

    def __init__(self, key: Tensor, place: Tensor):
        self.key, self.place, self.device = key, place, key.device

    def taken(self, size: int) -> int:
        return 0


def seeded(purpose: str, seed: int, run: str, device: torch.device) -> Stream:
    """The stream on a device for one purpose of one run, by its unique name, the same whenever the
    run is repeated."""
    key = hashlib.sha256(f"{purpose}/{seed}/{run}".encode()).digest()
    return _keyed(key, device)


def secure(device: torch.device = CipherStream.device) -> Stream:
    """A stream that cannot be reproduced: its key comes from the operating system, and is stored
    only in the checkpoints of an unfinished run. device: where bits are generated."""
    return _keyed(secrets.token_bytes(32), device)


def _keyed(key: bytes, device: torch.device) -> Stream:
    return GpuStream(key, device) if device.type == "cuda" else CipherStream(key)


def uniforms(stream: Stream, size: int) -> Tensor:
    """Uniform draws [size] float64 from the open interval (0, 1), with 52 random bits each."""
    return uniforms_of(stream.bits(size))


def uniforms_of(words: Tensor) -> Tensor:
    """Uniform numbers of words [n] int64; see `uniforms`."""
    return ((words & (2**52 - 1)).double() + 0.5) * 2.0**-52


def permutation(stream: Stream, size: int) -> Tensor:
    """A permutation [size] int64 of the numbers below `size`, uniform up to 2^-64 size^2."""
    return stream.bits(size).argsort()
