"""Texts without more padding than their length asks for."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Lengths:
    """A few lengths, to the least possible of which each text is cut, whatever the others are.

    sizes: numbers of tokens in ascending order; longer texts stay as they are. padding: the number
    of the padding token.
    """

    sizes: tuple[int, ...]
    padding: int

    def groups(self, texts: Tensor) -> list[tuple[Tensor, int]]:
        """The texts int64 or int32 [n, 2, T] by length: places [m] in order, and the length that
        these are cut to. One group for no texts."""
        most = texts.shape[-1]
        sizes = [*(size for size in self.sizes if size < most), most]
        padded = (texts[:, 0] == self.padding).flip(1).int().cumprod(1).sum(1)
        chosen = torch.bucketize(most - padded, torch.tensor(sizes, device=texts.device))
        groups = [((chosen == k).nonzero().flatten(), size) for k, size in enumerate(sizes)]
        return [group for group in groups if len(group[0])] or groups[:1]
