"""Saving and restoring the state of a part of a step: the tensors among its fields."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

P = TypeVar("P")


def state_of(part: Any) -> dict:
    """The tensors among the fields of a clip, an update or a noise, and of nested ones, by name.

    Settings are plain numbers; values that depend on earlier steps are tensors.
    """
    state: dict[str, Tensor | dict] = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, Tensor):
            state[field.name] = value
        elif is_dataclass(value) and (inner := state_of(value)):
            state[field.name] = inner
    return state


def restore_state(part: P, state: dict, device: torch.device) -> P:
    """The initial part of a step with the state that `state_of` returned."""
    changes = {
        name: restore_state(getattr(part, name), value, device)
        if isinstance(value, dict)
        else value.to(device)
        for name, value in state.items()
    }
    return replace(part, **changes)  # type: ignore[type-var]


def state_fields(part: Any) -> set[str]:
    """The fields of an initial part that state may be in: they are None, or tensors already."""
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return {name for name, value in values.items() if value is None or isinstance(value, Tensor)}
