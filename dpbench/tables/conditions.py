"""What a table varies beside its methods: data sets, budgets, or any other setting of a run."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from dpbench.errors import UserError

Value = str | int | float | None


@dataclass(frozen=True)
class Condition:
    """One combination: an option for each group and a value for each setting that is varied.

    With none it is the only condition of a table that varies nothing but its methods.
    """

    values: tuple[tuple[str, Value], ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for key, _ in self.values)

    @property
    def label(self) -> str:
        """`cifar10, epsilon 1`: options as they are, other values after the end of their key."""
        return ", ".join(_said(key, value) for key, value in self.values)

    def overrides(self) -> list[str]:
        return [f"{key}={'null' if value is None else value}" for key, value in self.values]

    def holds_in(self, config: Mapping[str, Any]) -> bool:
        """Whether a plain configuration is of this condition."""
        return all(setting(config, key) == value for key, value in self.values)


def _said(key: str, value: Value) -> str:
    if isinstance(value, str):
        return value
    name = key.rpartition(".")[2]
    return f"no {name}" if value is None else f"{name} {value:g}"


def setting(config: Mapping[str, Any], key: str) -> Any:
    """The option chosen in a group, or the value at a dotted key, of a plain configuration."""
    if key in config["choices"]:
        return config["choices"][key]
    return reduce(lambda node, part: node[part], key.split("."), config)


def conditions_of(blocks: Iterable[Mapping[str, Sequence[Value]]]) -> list[Condition]:
    """Every combination within each block (key to values), block after block.

    Without a block, the condition that varies nothing. Raises UserError where blocks differ in what
    they vary, and where a condition is there twice.
    """
    found = [
        Condition(tuple(zip(block, values, strict=True)))
        for block in blocks
        for values in itertools.product(*block.values())
    ]
    if len({condition.keys for condition in found}) > 1:
        raise UserError("Every block of a table's conditions must vary the same settings.")
    if len(set(found)) < len(found):
        raise UserError("A table's conditions must not name a combination twice.")
    return found or [Condition(())]


def narrowed(conditions: Sequence[Condition], key: str, value: Value) -> list[Condition]:
    """The conditions of that value; where there is none, all of them with that value instead."""
    kept = [c for c in conditions if (key, value) in c.values]
    moved = [
        Condition(tuple((k, value if k == key else v) for k, v in c.values)) for c in conditions
    ]
    return kept or list(dict.fromkeys(moved))


def row_name(condition: str, method: str) -> str:
    """What a method is called in a table, under the condition of that label."""
    return f"{condition}, {method}" if condition else method
