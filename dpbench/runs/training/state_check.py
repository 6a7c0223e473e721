"""Checks the structure of a run's state, which is the same in all of its checkpoints."""

from collections.abc import Iterator

from torch import Tensor

UNCHECKED = (
    "/parts/observer",
    "/parts/step/seam",
    "/parts/step/clip",
    "/parts/step/update",
    "/parts/step/correlated_noise",
    "/parts/step/optimizer/state",
    "/parts/step/optimizer/param_groups",
)
"""Parts whose structure changes during a run."""


def check_state(state: object, like: object, where: str = "") -> None:
    """ValueError if a state differs from one of the same run in its keys or the types of values.

    Tensors must agree in shape and dtype. Values that are None in the other state, and entries of
    lists, are not checked.
    """
    if where in UNCHECKED or like is None:
        return
    if isinstance(like, dict) and isinstance(state, dict) and state.keys() == like.keys():
        for key, part in like.items():
            check_state(state[key], part, f"{where}/{key}")
    elif isinstance(like, dict) or _kind(state) != _kind(like):
        raise ValueError(f"{where} does not belong to this run")


def _kind(value: object) -> tuple:
    if isinstance(value, Tensor):
        return type(value), value.dtype, value.shape
    return (type(value),)


def tensors(state: object) -> Iterator[Tensor]:
    """All tensors in nested dictionaries, lists and tuples."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors(part)
