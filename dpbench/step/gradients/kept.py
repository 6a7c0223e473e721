"""Nothing that a pass stores in a model is there in the next, which may be of other examples."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeGuard

import numpy as np
from torch import Tensor, nn

from dpbench.system.errors import UserError

CHANGED = (
    "%s was changed in place by a pass over examples, on which all later passes would depend, and "
    "epsilon covers nothing that a model stores about them; make it a constant."
)

OF_TORCH = {key for key in vars(nn.Module()) if "hooks" not in key and key != "training"}
"""Attributes of all modules, such as the dictionary of their parameters; hooks are not among them,
as a pass may set some."""

CONTAINERS = (list, dict, OrderedDict, defaultdict, Counter, set, deque, bytearray, np.ndarray)

Container = list | dict | set | deque | bytearray | np.ndarray

ELSEWHERE = (Tensor, type, ModuleType)
"""What has attributes that are not looked into."""

DEPTH = 4
"""How far containers are looked into that are in others."""


@contextmanager
def forgotten(*parts: object, by_value: bool = False) -> Iterator["Kept"]:
    """The context of a pass, after which the attributes of all modules are as they were before, and
    so are the elements of containers and the attributes of other objects among them, or in these.

    parts: the model and the loss, of which only modules keep anything. by_value: whether values
    are compared, which takes time; torch does not count all changes in place. Raises UserError for
    a tensor that was changed in place.
    """
    kept = Kept(*parts)
    before = [
        (name, x, _version(x), x.clone() if by_value and not isinstance(x, nn.Parameter) else None)
        for name, x in named_tensors(*parts)
    ]
    try:
        yield kept
    finally:
        kept.restore()
    for name, x, version, value in before:
        if _version(x) != version or not (value is None or _equal(x, value)):
            raise UserError(CHANGED % name)


def named_tensors(*parts: object) -> list[tuple[str, Tensor]]:
    """The parameters, buffers and other tensors among the attributes of all modules, and in
    containers and other objects there."""
    return [
        (f"{name}.{key}".lstrip("."), x)
        for name, module in modules_of(*parts)
        for of in (module._parameters, module._buffers, own_attributes(module))
        for key, value in of.items()
        for x in _within(value)
        if isinstance(x, Tensor)
    ]


class Kept:
    """What the modules in the model and the loss keep. stores: whether a pass had stored something
    else."""

    stores = False

    def __init__(self, *parts: object):
        modules = [module for _, module in modules_of(*parts)]
        found: list[Container] = [own for m in modules for own in (vars(m), m._buffers)]
        values = (value for module in modules for value in own_attributes(module).values())
        found += [part for value in values for part in _within(value) if _is_container(part)]
        self._before = [(each, each.copy()) for each in {id(each): each for each in found}.values()]

    def restore(self) -> None:
        """Undo what has changed since."""
        for container, before in self._before:
            if _content(container) != _content(before):
                self.stores = True
                _refill(container, before)


def _is_container(part: object) -> TypeGuard[Container]:
    return type(part) in CONTAINERS


def _refill(container: Container, before: Any) -> None:
    if isinstance(container, np.ndarray):
        container[...] = before
        return
    container.clear()
    if isinstance(container, (dict, set)):
        container.update(before)
    else:
        container.extend(before)


def _content(container: Container) -> object:
    """What two containers are compared by: the identities of their elements, or the values of
    arrays and bytes."""
    match container:
        case np.ndarray():
            return container.shape, container.tobytes()
        case bytearray():
            return bytes(container)
        case set():
            return {*map(id, container)}  # a copy may have another order
        case dict():
            return [*map(id, container), *map(id, container.values())]
    return [*map(id, container)]


def modules_of(*parts: object) -> Iterator[tuple[str, nn.Module]]:
    """The modules in the model and the loss, where that is one, with their names there."""
    for part in parts:
        if isinstance(part, nn.Module):
            yield from part.named_modules()


def own_attributes(module: nn.Module) -> dict[str, object]:
    """The attributes that not all modules have."""
    return {key: value for key, value in vars(module).items() if key not in OF_TORCH}


def _within(value: Any, depth: int = DEPTH) -> Iterator[object]:
    """A value and, if it is a container or an object with attributes, all that is in it."""
    yield value
    if isinstance(value, (*ELSEWHERE, np.ndarray, bytearray)) or not depth:
        return
    if type(value) in (*CONTAINERS, tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _within(part, depth - 1)
    elif isinstance(own := getattr(value, "__dict__", None), dict):
        yield from _within(own, depth)


def _version(x: Tensor) -> int:
    """How often a tensor was changed in place, as far as torch counts it."""
    return 0 if x.is_inference() else x._version


def _equal(x: Tensor, y: Tensor) -> bool:
    """Whether tensors are equal; NaN equals NaN."""
    return x.shape == y.shape and bool(((x == y) | ((x != x) & (y != y))).all())
