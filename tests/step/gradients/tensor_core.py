"""Products as a tensor core takes them (Fasi et al. 2021): of numbers rounded to TF32, exact, and
added up a few at a time, where addends and sums are cut to the 24 bits of the largest addend."""

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

ADDED_AT_ONCE = 4


def _cut(x: Tensor, like: Tensor) -> Tensor:
    """x [..., n] float64 cut to 24 bits, counted from the first of the largest of `like`."""
    largest = like.abs().amax(-1, keepdim=True)
    unit = torch.ldexp(torch.ones_like(largest), largest.frexp().exponent - 24)
    return (x / unit).trunc() * unit


def _tf32(x: Tensor) -> Tensor:
    """x float64 rounded to the nearest number of 11 bits."""
    mantissa, exponent = x.frexp()
    return torch.ldexp((mantissa * 2**11).round(), exponent - 11)


def product(x: Tensor, y: Tensor, total: Tensor | None = None) -> Tensor:
    """x @ y, and total; x [..., m, k], y [..., k, n]."""
    left, right = _tf32(x.double()).unsqueeze(-2), _tf32(y.mT.double()).unsqueeze(-3)
    out = (x.new_zeros(x.shape[:-1] + y.shape[-1:]) if total is None else total).double()
    for a, b in zip(left.split(ADDED_AT_ONCE, -1), right.split(ADDED_AT_ONCE, -1), strict=True):
        addends = torch.cat([a * b, out.unsqueeze(-1)], -1)
        added = _cut(addends, addends).sum(-1, keepdim=True)
        out = _cut(added, added).squeeze(-1).float().double()
    return out.float()


class TensorCore(TorchFunctionMode):
    """Within the context, torch's matrix products are a tensor core's."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        match func.__name__, args:
            case (("mm" | "bmm"), (x, y)):
                made = product(x, y)
                return kwargs["out"].copy_(made) if kwargs else made
            case "baddbmm_", (total, x, y):
                return total.copy_(product(x, y, total))
        return func(*args, **(kwargs or {}))
