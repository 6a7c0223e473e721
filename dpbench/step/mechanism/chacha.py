"""The key stream of ChaCha20 by integer operations of torch, on any device, from any place of it
(Bernstein 2008, with a counter and a nonce of 64 bits; the rounds are those of RFC 8439).
"""

import torch
from torch import Tensor

WORDS = 8
"""Words of 64 bits in a block."""

CONSTANTS = [int.from_bytes(b"expand 32-byte k"[i : i + 4], "little") for i in range(0, 16, 4)]
"""The first four of a block's sixteen numbers of 32 bits."""


def key_words(key: bytes, device: torch.device) -> Tensor:
    """A key of 32 bytes as [8] int32."""
    return torch.frombuffer(bytearray(key), dtype=torch.int32).to(device)


def words(key: Tensor, nonce: int, first: int, size: int) -> Tensor:
    """The words [size] int64 of a key stream from the place `first`; key [8] int32."""
    start, skipped = divmod(first, WORDS)
    numbers = torch.arange(start, start + -(-(skipped + size) // WORDS), device=key.device)
    return _blocks(key, nonce, numbers).view(torch.int64)[skipped : skipped + size]


def _blocks(key: Tensor, nonce: int, numbers: Tensor) -> Tensor:
    """The blocks of these numbers [n] int64, one after the other [16 n] int32."""
    constants = torch.tensor(CONSTANTS, dtype=torch.int32).to(key.device)
    rest = torch.tensor([nonce, 0], dtype=torch.int32).to(key.device)
    counter = torch.stack([numbers.to(torch.int32), (numbers >> 32).to(torch.int32)])
    fixed = [x.unsqueeze(1).expand(-1, len(numbers)) for x in (constants, *key.split(4), rest)]
    rows = [*fixed[:3], torch.cat([counter, fixed[3]])]  # [4, n] each
    a, b, c, d = rows
    for _ in range(10):
        a, b, c, d = _quarter_rounds(a, b, c, d)  # columns, and then diagonals
        a, b, c, d = _quarter_rounds(a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    sums = [x + y for x, y in zip((a, b, c, d), rows, strict=True)]
    return torch.cat(sums).T.flatten()


def _quarter_rounds(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, ...]:
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    return a, _rotated(b ^ c, 7), c, d


def _rotated(x: Tensor, bits: int) -> Tensor:
    """int32 rotated to the left; the shift to the right is of signed numbers."""
    return (x << bits) | ((x >> (32 - bits)) & ((1 << bits) - 1))
