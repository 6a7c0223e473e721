"""Packed sequences that stay padded, so that torch can vectorise over examples of any lengths.

Of a `PackedSequence` that is made within `padded()`, data are the padded inputs [T, B, ...], and
batch_sizes the lengths [B]. What is past a sequence's length is never read.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import rnn
from torch.overrides import TorchFunctionMode


@contextmanager
def padded() -> Iterator[None]:
    """Within the context, sequences are packed and padded again without a change of their size."""
    of_torch: Any = rnn
    inverse = of_torch.invert_permutation
    of_torch.invert_permutation = lambda order: None if order is None else order.argsort()
    try:
        with Replaced():
            yield
    finally:
        of_torch.invert_permutation = inverse


class Replaced(TorchFunctionMode):
    """Computes what INSTEAD has in place of torch's operations."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return INSTEAD.get(func, func)(*args, **(kwargs or {}))


def within(x: Tensor, lengths: Tensor) -> Tensor:
    """Whether each step of x [T, B, ...] is one of its sequence [T, B, 1, ...]; lengths [B]."""
    steps = torch.arange(len(x), device=x.device).unsqueeze(1)
    return (steps < lengths.to(x.device)).view(*x.shape[:2], *[1] * (x.dim() - 2))


def _pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    return _turned(x, batch_first), lengths


def _pad(
    x: Tensor, lengths: Tensor, batch_first: bool, value: float, steps: int
) -> tuple[Tensor, Tensor]:
    """steps: the total length, if one is asked for; else the length of `lengths`."""
    x = x.masked_fill(~within(x, lengths), value)
    if steps > len(lengths):
        x = F.pad(x, [0] * (2 * x.dim() - 1) + [steps - len(x)], value=value)
    return _turned(x, batch_first), lengths


def _turned(x: Tensor, batch_first: bool) -> Tensor:
    return x.transpose(0, 1) if batch_first else x


INSTEAD: dict[Any, Callable[..., tuple[Tensor, Tensor]]] = {
    torch._VF._pack_padded_sequence: _pack,
    torch._VF._pad_packed_sequence: _pad,
}
"""By operations of torch that cannot be vectorised."""
