"""What a table's file chooses and sets for a run: its rules, and the search that it names."""

from collections.abc import Iterator, Mapping
from typing import Any

from dpbench.runs.config.search_path import groups
from dpbench.runs.config.table_file import Rule, TableFile, table_file
from dpbench.runs.config.tuned import settings_of_search
from dpbench.system.errors import UserError
from dpbench.system.validate import known_keys, one_of

ARM = "table.arm"
"""The key that selects a row of a table whose rows differ by more than their method."""


def table_of(plain: Mapping[str, Any]) -> TableFile:
    """The table in a plain mapping; UserError for an invalid one, and for an unknown arm or group
    of options."""
    table = table_file(plain)
    for number, rule in enumerate(table.settings):
        known_keys(f"table.settings[{number}].choose", rule.choose, groups())
    if isinstance(table.arm, str):
        one_of(ARM, table.arm, table.methods)
    return table


def rules(table: TableFile, choices: Mapping[str, str]) -> Iterator[Rule]:
    """The table's rules that apply to these choices, in their order."""
    chosen = {**choices, "arm": table.arm}
    for rule in table.settings:
        if all(chosen.get(group) == option for group, option in rule.when.items()):
            yield rule


def values(table: TableFile, choices: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """The values that the table's rules and their searches set, in order, and then those of the
    table's own search, unless a rule names another.

    A search that has not been made sets nothing: it may be the one that is about to run.
    """
    by_rule = False
    for rule in rules(table, choices):
        yield rule.set
        yield _choice(rule.tuned, choices, table.arm)
        by_rule |= bool(rule.tuned)
    if not by_rule:
        yield _choice(table.tuned, choices, table.arm)


def _choice(tuned: str, choices: Mapping[str, str], arm: object) -> Mapping[str, Any]:
    chosen = settings_of_search(search_name(tuned, choices, arm)) if tuned else None
    return chosen or {}


def search_of(table: TableFile, choices: Mapping[str, str]) -> str:
    """The name of the search whose choice has the last word on these choices, or ""."""
    by_rules = [rule.tuned for rule in rules(table, choices) if rule.tuned]
    tuned = by_rules[-1] if by_rules else table.tuned
    return search_name(tuned, choices, table.arm) if tuned else ""


def search_name(tuned: str, choices: Mapping[str, object], arm: object) -> str:
    """The name of a search, with options for `{GROUP}` and the arm for `{arm}`."""
    try:
        return tuned.format_map({**choices, "arm": arm})
    except (KeyError, ValueError, IndexError) as error:
        raise UserError(
            "table.tuned must be the name of a search, in which {GROUP} stands for an option and "
            f"{{arm}} for the row, got {tuned!r}."
        ) from error


def chosen_by_table(table: TableFile, choices: Mapping[str, str]) -> list[str]:
    """The options that the table's rules choose, as overrides."""
    chosen = {
        group: option for rule in rules(table, choices) for group, option in rule.choose.items()
    }
    return [f"{group}={option}" for group, option in chosen.items()]
