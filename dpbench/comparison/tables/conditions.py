"""The conditions of a table: the settings that it varies beside its methods, as data sets."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from dpbench.runs.config.table_file import Value
from dpbench.system.errors import UserError


@dataclass(frozen=True)
class Condition:
    """One combination of options and values of the settings that are varied.

    Without any it is the only condition of a table that varies only its methods.
    """

    values: tuple[tuple[str, Value], ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for key, _ in self.values)

    @property
    def label(self) -> str:
        """`cifar10, epsilon 1`: options by their name, other values after the end of their key."""
        return ", ".join(_in_words(key, value) for key, value in self.values)

    def overrides(self) -> list[str]:
        return [f"{key}={'null' if value is None else value}" for key, value in self.values]

    def is_met_by(self, config: Mapping[str, Any]) -> bool:
        """Whether a plain configuration meets this condition."""
        return all(setting(config, key) == value for key, value in self.values)


def _in_words(key: str, value: Value) -> str:
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
    """Every combination within each block (key to values); without a block, the one that varies
    nothing. UserError where blocks vary different settings, and for duplicate conditions."""
    conditions = [
        Condition(tuple(zip(block, values, strict=True)))
        for block in blocks
        for values in itertools.product(*block.values())
    ]
    if len({condition.keys for condition in conditions}) > 1:
        raise UserError("Every block of a table's conditions must vary the same settings.")
    if len(set(conditions)) < len(conditions):
        raise UserError("A table's conditions must not name a combination twice.")
    return conditions or [Condition(())]


def restricted_to(conditions: Sequence[Condition], key: str, value: Value) -> list[Condition]:
    """The conditions with that value; if there are none, all conditions changed to that value."""
    matching = [c for c in conditions if (key, value) in c.values]
    changed = [
        Condition(tuple((k, value if k == key else v) for k, v in c.values)) for c in conditions
    ]
    return matching or list(dict.fromkeys(changed))


def row_name(condition: str, method: str) -> str:
    """The name of a method's row under the condition of that label."""
    return f"{condition}, {method}" if condition else method
