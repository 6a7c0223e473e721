"""The random numbers of a pass, recorded and given again, so that passes can be compared."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dpbench.step.gradients.rows.dispatch import DispatchMode

aten = torch.ops.aten

DRAWS = {aten.bernoulli, aten.bernoulli_, aten.normal_, aten.rand, aten.rand_like, aten.randn}
DRAWS |= {aten.randint, aten.randint_like, aten.randn_like, aten.randperm, aten.uniform_}
DRAWS |= {aten.cauchy_, aten.exponential_, aten.geometric_, aten.log_normal_, aten.random_}
"""Operations whose result is what they draw."""


class OtherDraws(Exception):
    """A unit alone draws other random numbers than in a batch."""


def _draws(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


class Recorded(DispatchMode):
    """Within the context, records what is drawn.

    values: the draws in their order. known: whether they can be given again, which not every
    operation allows. rounds: whether numbers in float64 were rounded to a narrower type.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values: list[Tensor] = []
        self.known = True
        self.rounds = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if _draws(func):
            self.known &= func.overloadpacket in DRAWS
            self.values.append(out.clone() if isinstance(out, Tensor) else out[1])
        # Where it vectorises some operations, torch copies numbers, too.
        copied = args[0] if func.overloadpacket is aten._to_copy else None
        if isinstance(copied, Tensor) and copied.dtype is torch.float64:
            self.rounds |= out.is_floating_point() and out.dtype is not torch.float64
        return out


class Repeated(DispatchMode):
    """Within the context, a unit's own part of recorded draws takes the place of new ones;
    OtherDraws if they are not those of such a unit."""

    def __init__(self, values: list[Tensor], unit: int):
        super().__init__()
        self._values: Iterator[Tensor] = iter(values)
        self._unit = unit

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        return out.copy_(self._part(out.shape)) if _draws(func) else out

    def _part(self, shape: torch.Size) -> Tensor:
        """The unit's part of the next draw: along the one axis on which the shapes differ."""
        value = next(self._values, None)
        if value is None or value.dim() != len(shape):
            raise OtherDraws
        for axis, (size, own) in enumerate(zip(value.shape, shape, strict=True)):
            if size != own:
                return value.narrow(axis, self._unit * own, own)
        return value
