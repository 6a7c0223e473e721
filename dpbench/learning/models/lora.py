"""Low-rank adapters (LoRA)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from dpbench.system.errors import UserError
from dpbench.system.validate import Count, Positive, quoted


class Adapted(nn.Module):
    """A frozen map plus scale times a trained one of low rank: base(x) + scale B(A(x)).

    A: from the inputs to `rank` numbers; B: from those to the outputs, initially 0. Neither has a
    bias, and both are modules of their own, so that the fast engine has rules for them.
    """

    def __init__(self, base: Any, rank: int, scale: float):
        super().__init__()
        self.base, self.rank, self.scale = base, rank, scale
        self.lora_A, self.lora_B = _low_rank(base, rank)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.base(inputs) + self.scale * self.lora_B(self.lora_A(inputs))


def _low_rank(base: Any, rank: int) -> tuple[Any, Any]:
    """A and B for a linear map, or for a convolution without groups."""
    if isinstance(base, nn.Linear):
        down = nn.Linear(base.in_features, rank, bias=False)
        return down, nn.Linear(rank, base.out_features, bias=False)
    window = base.kernel_size, base.stride, base.padding, base.dilation
    inner = nn.Conv2d(base.in_channels, rank, *window, bias=False)
    return inner, nn.Conv2d(rank, base.out_channels, 1, bias=False)


@dataclass(frozen=True)
class Lora:
    """The adapters of a network (Hu et al. 2022, "LoRA: Low-rank adaptation of large language
    models").

    rank: of the trained maps, which are scaled by alpha/rank. targets: the last part of the names
    of the adapted modules, such as `qkv` or `query`; None for all linear maps and convolutions
    without groups, except the head.
    """

    rank: Count
    alpha: Positive
    targets: Sequence[str] | None

    def __post_init__(self) -> None:
        if self.targets is not None:
            if not self.targets:
                raise UserError(
                    "model.lora.targets=[] is not a list of names of modules: write "
                    "[query, value], or null for all."
                )
            object.__setattr__(self, "targets", tuple(self.targets))  # so that it has a hash

    def adapt(self, net: nn.Module, head: nn.Module) -> None:
        """Replace the targets in a network by adapted ones; UserError if a name fits none."""
        names = {path: path.rpartition(".")[2] for path in adaptable(net, head)}
        for name in self.targets or ():
            if name not in names.values():
                raise UserError(
                    f"model.lora.targets={quoted(name)} names no linear map and no convolution "
                    f"without groups: there are {', '.join(sorted({*names.values()}))}."
                )
        for path, name in names.items():
            if self.targets is None or name in self.targets:
                base = net.get_submodule(path)
                net.set_submodule(path, Adapted(base, self.rank, self.alpha / self.rank))


def adaptable(net: nn.Module, head: nn.Module) -> Iterator[str]:
    """The names of the modules that adapters can be added to."""
    in_head = {*head.modules()}
    for path, module in net.named_modules():
        whole = isinstance(module, nn.Conv2d) and module.groups == 1
        if (whole or isinstance(module, nn.Linear)) and module not in in_head:
            yield path
