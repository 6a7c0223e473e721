"""The parts of a model whose parameters are kept together by the book-keeping engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import nn

from dpbench.errors import UserError
from dpbench.gradients.layers import FALLBACK, RULES, LayerGradient, Rule, Seen

Part = nn.Module | str
"""What a pass leaves an adjoint of: a module's output, or copies of a bare parameter, by name."""


class Unsupported(UserError):
    """Why book-keeping cannot be done for a model: the reason, as part of a sentence."""

    def __init__(self, reason: str):
        super().__init__(
            f"engine=ghost cannot be used with this model, because {reason}; use engine=vmap."
        )
        self.reason = reason


@dataclass(frozen=True)
class Unit:
    """A module whose parameters are kept together: by its rule, or whole by the fallback.

    bare: parameters that the module uses itself beside children of its own; their first axis is 1,
    so a copy per example broadcasts over the batch as they do, and gets the example's gradient.
    """

    name: str
    module: nn.Module
    bare: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """What a pass leaves adjoints of."""
        return self.bare or (self.module,)

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of its trainable parameters in the model."""
        prefix = f"{self.name}." if self.name else ""
        named = self.module.named_parameters()
        return self.bare or tuple(prefix + name for name, p in named if p.requires_grad)

    @property
    def known(self) -> bool:
        """Whether there is a rule for it; bare parameters need none."""
        return bool(self.bare) or _known(self.module)

    @cached_property
    def rule(self) -> Rule:
        return RULES[type(self.module)] if _known(self.module) else FALLBACK


class Kept(NamedTuple):
    """What one pass leaves of a unit: its layers' gradients, and what a module saw.

    used: whether the losses depended on all of it.
    """

    gradients: Sequence[LayerGradient]
    seen: Seen | None  # None for bare parameters
    used: bool = True


def units(model: nn.Module) -> list[Unit]:
    """All units of a model in the order of theta; each trainable parameter is in exactly one.

    Raises Unsupported for modules that no unit can be made of.
    """
    found = list(_below("", model))
    for unit in found:
        if not unit.known:
            _refuse_random(unit.module)
    return found


def _below(name: str, module: nn.Module) -> Iterator[Unit]:
    direct = {n: p for n, p in module.named_parameters(recurse=False) if p.requires_grad}
    below = any(p.requires_grad for c in module.children() for p in c.parameters())
    broadcast = all(p.dim() > 1 and len(p) == 1 for p in direct.values())
    if direct and not (below and broadcast):
        yield Unit(name, module)
        return
    prefix = f"{name}." if name else ""
    if direct:
        yield Unit(name, module, tuple(prefix + n for n in direct))
    for child_name, child in module.named_children():
        yield from _below(prefix + child_name, child)


def _known(module: nn.Module) -> bool:
    """Whether a module has a rule, and nothing about it that the rule does not know."""
    if isinstance(module, nn.Embedding) and (module.max_norm or module.scale_grad_by_freq):
        raise Unsupported("an embedding mixes examples (max_norm or scale_grad_by_freq)")
    return type(module) in RULES and all(p.requires_grad for p in module.parameters())


def _refuse_random(module: nn.Module) -> None:
    """A fallback computes its module again, which must then do the same again."""
    for part in module.modules():
        if getattr(part, "p", 0) or getattr(part, "drop_prob", 0):
            raise Unsupported(f"{type(module).__name__} has no rule and draws random numbers")
