"""Nothing that a pass stores in a model is there in the next, which may be of other examples."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from dpbench.system.errors import UserError

CHANGED = (
    "%s was changed in place by a pass over examples, on which all later passes would depend, and "
    "epsilon covers nothing that a model stores about them; make it a constant."
)

OF_TORCH = {key for key in vars(nn.Module()) if "hooks" not in key and key != "training"}
"""Attributes of all modules, such as the dictionary of their parameters; hooks are not among them,
as a pass may set some."""

Container = list | dict | set | deque
CONTAINERS = (list, dict, OrderedDict, set, deque)


@contextmanager
def forgotten(*parts: object, by_value: bool = False) -> Iterator[list["Kept"]]:
    """The context of a pass, after which the attributes of all modules are as they were before, and
    so are the elements of lists, dictionaries and sets among them.

    parts: the model and the loss, of which only modules keep anything. by_value: whether values
    are compared, which takes time; torch does not count all changes in place. Raises UserError for
    a tensor that was changed in place.
    """
    kept = [Kept(module) for _, module in _modules(parts)]
    before = [
        (name, x, _version(x), x.clone() if by_value and not isinstance(x, nn.Parameter) else None)
        for name, x in named_tensors(*parts)
    ]
    try:
        yield kept
    finally:
        for one in kept:
            one.restore()
    for name, x, version, value in before:
        if _version(x) != version or not (value is None or _equal(x, value)):
            raise UserError(CHANGED % name)


def named_tensors(*parts: object) -> list[tuple[str, Tensor]]:
    """The parameters, buffers and other tensors among the attributes of all modules."""
    return [
        (f"{name}.{key}".lstrip("."), value)
        for name, module in _modules(parts)
        for of in (module._parameters, module._buffers, vars(module))
        for key, value in of.items()
        if isinstance(value, Tensor)
    ]


class Kept:
    """What one module keeps. stores: whether a pass had stored something else."""

    stores = False

    def __init__(self, module: nn.Module):
        self._dictionaries = [(own, own.copy()) for own in (vars(module), module._buffers)]
        self._containers = [
            (value, value.copy())
            for key, value in vars(module).items()
            if type(value) in CONTAINERS and key not in OF_TORCH
        ]

    def restore(self) -> None:
        """Undo what has changed since."""
        for own, before in self._dictionaries:
            self._refill(own, before)
        for container, elements in self._containers:
            self._refill(container, elements)

    def _refill(self, container: Container, elements: Container) -> None:
        now, before = map(_objects, (container, elements))
        if now != before:
            self.stores = True
            container.clear()
            if isinstance(container, (list, deque)):
                container.extend(elements)
            else:
                container.update(elements)


def _modules(parts: tuple[object, ...]) -> Iterator[tuple[str, nn.Module]]:
    for part in parts:
        if isinstance(part, nn.Module):
            yield from part.named_modules()


def _objects(container: Container) -> list[int]:
    values = container.values() if isinstance(container, dict) else container
    return [*map(id, values)]


def _version(x: Tensor) -> int:
    """How often a tensor was changed in place, as far as torch counts it."""
    return 0 if x.is_inference() else x._version


def _equal(x: Tensor, y: Tensor) -> bool:
    """Whether tensors are equal; NaN equals NaN."""
    return x.shape == y.shape and bool(((x == y) | ((x != x) & (y != y))).all())
