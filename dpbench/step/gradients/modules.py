"""The modules that the book-keeping engine tracks, and the gradients of each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpbench.step.gradients.layers import FALLBACK, LayerGradient, LayerRule, ModuleCall, rule_of
from dpbench.system.errors import UserError
from dpbench.system.grouping import grouped
from dpbench.system.seeds import torch_state

AdjointKey = nn.Module | str
"""A key of the backward pass's adjoints: a module, for its output, or a bare parameter's name."""


class Unsupported(UserError):
    """The book-keeping engine does not support a model; reason: a clause with the cause."""

    def __init__(self, reason: str):
        super().__init__(
            f"engine=ghost cannot be used with this model, because {reason}; use engine=vmap."
        )
        self.reason = reason


class RowsMoved(Unsupported):
    """Row i of a module's input or output is not that of the i-th row of the batch."""


class ModuleGradients(NamedTuple):
    """The per-example gradients of a module's layers.

    values: the parameters that the module computed with; None for bare parameters, and for a module
    that was not called. views: rows of each example. used: whether the losses depended on the
    module.
    """

    gradients: Sequence[LayerGradient]
    values: Callable[[], dict[str, Tensor]] | None = None
    views: int = 1
    used: bool = True


@dataclass(frozen=True)
class TrackedModule:
    """A module whose gradients come from one rule: that of its type, or the fallback for its whole
    subtree.

    bare: names of parameters that a module with children uses directly. Their first axis has length
    1, so that one copy per example broadcasts like the parameter and gets the example's gradient.
    """

    name: str
    module: nn.Module
    bare: tuple[str, ...] = ()

    @property
    def adjoint_keys(self) -> tuple[AdjointKey, ...]:
        """The keys of its adjoints."""
        return self.bare or (self.module,)

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of its trainable parameters in the model."""
        prefix = f"{self.name}." if self.name else ""
        named = self.module.named_parameters()
        return self.bare or tuple(prefix + name for name, p in named if p.requires_grad)

    def zeros(self, units: int) -> list[Tensor]:
        """Gradients [units, d] of zero for each of its layers, for a pass that does not call it."""
        trained = ((name, p) for name, p in self.module.named_parameters() if p.requires_grad)
        layers = grouped((name.rpartition(".")[0], p.numel()) for name, p in trained)
        sizes = map(sum, layers.values())
        return [next(self.module.parameters()).new_zeros(units, size) for size in sizes]

    @property
    def has_rule(self) -> bool:
        """Whether there is a rule for it; bare parameters need none."""
        return bool(self.bare) or self.rule is not FALLBACK

    @cached_property
    def rule(self) -> LayerRule:
        return rule_of(self.module) or FALLBACK

    @property
    def formed_at_once(self) -> bool:
        """Whether its gradients need neither inputs nor adjoint once they are formed."""
        return not self.bare and self.rule.materialised

    def gradients(self, call: ModuleCall) -> ModuleGradients:
        """Those of a call."""
        return ModuleGradients(self.rule.gradients(call), call.values, call.views)


def tracked_modules(model: nn.Module) -> list[TrackedModule]:
    """The tracked modules in the order of theta; each trainable parameter is in exactly one.

    Raises Unsupported for embeddings that mix examples.
    """
    return list(_below("", model))


def _below(name: str, module: nn.Module) -> Iterator[TrackedModule]:
    direct = {n: p for n, p in module.named_parameters(recurse=False) if p.requires_grad}
    below = any(p.requires_grad for c in module.children() for p in c.parameters())
    broadcast = all(p.dim() > 1 and len(p) == 1 for p in direct.values())
    if direct and isinstance(module, nn.Embedding):
        _refuse_mixing(module)
    if direct and not (below and broadcast):
        yield TrackedModule(name, module)
        return
    prefix = f"{name}." if name else ""
    if direct:
        yield TrackedModule(name, module, tuple(prefix + n for n in direct))
    for child_name, child in module.named_children():
        yield from _below(prefix + child_name, child)


def _refuse_mixing(embedding: nn.Embedding) -> None:
    """Raise Unsupported for settings with which an example's gradient depends on others."""
    if embedding.max_norm or embedding.scale_grad_by_freq:
        raise Unsupported("an embedding mixes examples (max_norm or scale_grad_by_freq)")


@contextmanager
def refusing_random(modules: Iterable[nn.Module], device: torch.device) -> Iterator[None]:
    """Within the context, a pass raises Unsupported if one of the modules draws random numbers."""
    before: dict[nn.Module, Tensor] = {}

    def remember(module: nn.Module, _: object) -> None:
        before[module] = torch_state(device)

    def compare(module: nn.Module, *_: object) -> None:
        if not torch.equal(before[module], torch_state(device)):
            raise Unsupported(f"{type(module).__name__} has no rule and draws random numbers")

    hooks = [
        hook
        for module in modules
        for hook in (
            module.register_forward_pre_hook(remember),
            module.register_forward_hook(compare),
        )
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
