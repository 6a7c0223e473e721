"""The rules of a table: what its `settings` say for the chosen options, and what a table may hold.

Each rule has conditions (`when`), options (`choose`) and values (`set`).
"""

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dpbench.errors import UserError, nearest
from dpbench.validate import typed

ARM = "table.arm"
"""Which row of a table, where rows differ by more than their method."""

Value = str | float | None

TYPES: dict[str, Any] = {
    **dict.fromkeys(("title", "paper", "spread", "baseline", "scale"), str),
    **dict.fromkeys(("arm", "published", "epsilon"), str | None),
    **dict.fromkeys(("methods", "notes"), list[str]),
    **dict.fromkeys(("seeds", "group_numbers"), list[int]),
    **dict.fromkeys(("published_runs", "loss_digits"), int),
    **dict.fromkeys(("bench", "figure", "compute"), dict[str, Any]),
    "groups": list[str | int],
    **dict.fromkeys(("columns", "claims"), dict[str, dict[str, Any]]),
    "conditions": list[dict[str, list[Value]]],
    "scales": dict[str, dict[str, str | list[str]]],
    "settings": list[dict[str, dict[str, Any]]],
    "variants": dict[str, list[str | dict[str, Value]]],
    "figure.kind": str,
    "figure._target_": str,
    "figure.x": str,
    "figure.y": str,
    "figure.what": str,
    "figure.band": str,
    "figure.x_scale": str,
    "figure.labels": dict[str, str],
    "figure.rows": list[dict[str, Any]],
    "figure.panels": list[dict[str, Any]] | dict[str, str],
}
"""By key of a table: what it holds. What a column or a picture is made of, its own part checks."""


def check_table(config: DictConfig) -> None:
    """UserError for a table, if there is one, that holds what no table does, or no such arm."""
    if "table" not in config:
        return
    table = OmegaConf.to_container(config.table, resolve=True)
    typed("table", table, dict[str, Any])
    assert isinstance(table, dict)
    _check_keys("", table)
    _check_keys("figure.", table.get("figure", {}))
    for number, rule in enumerate(table.get("settings", [])):
        typed(f"table.settings[{number}].choose", rule.get("choose", {}), dict[str, str])
    arm, known = table.get("arm"), table.get("methods", [])
    if arm is not None and arm not in known:
        raise UserError(f"{ARM}={arm} is unknown: {nearest(str(arm), known)}")


def _check_keys(prefix: str, part: dict) -> None:
    for key, value in part.items():
        typed(f"table.{prefix}{key}", value, TYPES.get(f"{prefix}{key}", Any))


def rules(config: DictConfig, choices: dict) -> Iterator[DictConfig]:
    """The table's rules for these choices, in the order in which it says them."""
    table = config.get("table", {})
    chosen = {**choices, "arm": table.get("arm")}
    for rule in table.get("settings", ()):
        if all(chosen.get(group) == option for group, option in rule.get("when", {}).items()):
            yield rule


def chosen_by_table(config: DictConfig, choices: dict) -> list[str]:
    """The options that the table's rules choose, as overrides."""
    found = list(rules(config, choices))
    wanted = {group: name for rule in found for group, name in rule.get("choose", {}).items()}
    return [f"{group}={name}" for group, name in wanted.items()]
