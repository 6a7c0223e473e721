"""The form of a run's state: what a checkpoint has in common with every other one of its run."""

from collections.abc import Iterator

from torch import Tensor

ANY = (
    "/parts/observer",
    "/parts/step/clip",
    "/parts/step/optimizer/state",
    "/parts/step/optimizer/param_groups",
)
"""What grows as the run goes on."""


def check_form(state: object, like: object, where: str = "") -> None:
    """ValueError where a state has other keys than one of the same run, or other kinds of values.

    Tensors must agree in shape and type. What is None in the other may be anything, and so may the
    entries of lists.
    """
    if where in ANY or like is None:
        return
    if isinstance(like, dict) and isinstance(state, dict) and state.keys() == like.keys():
        for key, part in like.items():
            check_form(state[key], part, f"{where}/{key}")
    elif isinstance(like, dict) or _kind(state) != _kind(like):
        raise ValueError(f"{where} is none of this run")


def _kind(value: object) -> tuple:
    return (type(value), *((value.dtype, value.shape) if isinstance(value, Tensor) else ()))


def tensors(state: object) -> Iterator[Tensor]:
    """All tensors in nested dictionaries, lists and tuples."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors(part)
