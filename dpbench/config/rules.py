"""The schema of a table, the rules in its `settings`, and the search that it takes values from.

Each rule has conditions (`when`), options to choose (`choose`) and values to set (`set`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dpbench.config.search_path import groups
from dpbench.config.tuned import settings_of_search
from dpbench.system.errors import UserError
from dpbench.system.validate import known_keys, one_of, typed

ARM = "table.arm"
"""The key that selects a row of a table whose rows differ by more than their method."""

Value = str | float | None

TYPES: dict[str, Any] = {
    **dict.fromkeys(("title", "paper", "spread", "baseline", "claimed_by", "tuned"), str),
    **dict.fromkeys(("arm", "published", "epsilon"), str | None),
    **dict.fromkeys(("methods", "notes"), list[str]),
    **dict.fromkeys(("seeds", "group_numbers"), list[int]),
    **dict.fromkeys(("published_runs", "loss_digits"), int),
    **dict.fromkeys(("bench", "figure", "compute", "challenge"), dict[str, Any]),
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
    "figure.searches": str,
    "figure.variable": str,
    "figure.columns": str,
    "figure.band": str,
    "figure.labels": dict[str, str],
    "figure.panels": list[dict[str, Any]] | dict[str, str],
}
"""The type of each key of a table. Columns, claims and panels are checked by `dpbench.tables`."""

RULE = ("when", "choose", "set")
"""The keys of a rule in `table.settings`."""


def check_table(table: Any) -> None:
    """UserError for unknown keys, mistyped values or an unknown arm of a plain table."""
    typed("table", table, dict[str, Any])
    _check_keys("", table)
    if "_target_" not in table.get("figure", {}):
        _check_keys("figure.", table.get("figure", {}))
    for number, rule in enumerate(table.get("settings", [])):
        for key in rule:
            one_of(f"the key of a rule in table.settings[{number}]", key, RULE)
        typed(f"table.settings[{number}].choose", rule.get("choose", {}), dict[str, str])
        known_keys(f"table.settings[{number}].choose", rule.get("choose", {}), groups())
    arm, known = table.get("arm"), table.get("methods", [])
    if arm is not None:
        one_of(ARM, arm, known)


def _check_keys(prefix: str, part: dict) -> None:
    known = [key.removeprefix(prefix) for key in TYPES if key.rpartition(".")[0] == prefix[:-1]]
    known_keys(f"table.{prefix[:-1]}" if prefix else "the table", part, known)
    for key, value in part.items():
        typed(f"table.{prefix}{key}", value, TYPES[prefix + key])


def rules(table: dict, choices: dict) -> Iterator[dict]:
    """The table's rules that apply to these choices, in their order."""
    chosen = {**choices, "arm": table.get("arm")}
    for rule in table.get("settings", ()):
        if all(chosen.get(group) == option for group, option in rule.get("when", {}).items()):
            yield rule


def values(table: dict, choices: dict) -> Iterator[Mapping[str, Any]]:
    """The values that the table's rules set, in order, and then those of its search.

    A search that has not been made sets nothing: it may be the one that is about to run.
    """
    for rule in rules(table, choices):
        yield rule.get("set", {})
    if "tuned" in table:
        yield settings_of_search(search_of(table, choices)) or {}


def search_of(table: dict, choices: Mapping[str, Any]) -> str:
    """The name of the search in `tuned`, with options for `{GROUP}` and the arm for `{arm}`."""
    try:
        return table["tuned"].format_map({**choices, "arm": table.get("arm")})
    except (KeyError, ValueError, IndexError) as error:
        raise UserError(
            "table.tuned must be the name of a search, in which {GROUP} stands for an option and "
            f"{{arm}} for the row, got {table['tuned']!r}."
        ) from error


def chosen_by_table(table: dict, choices: dict) -> list[str]:
    """The options that the table's rules choose, as overrides."""
    chosen = {
        group: option
        for rule in rules(table, choices)
        for group, option in rule.get("choose", {}).items()
    }
    return [f"{group}={option}" for group, option in chosen.items()]
