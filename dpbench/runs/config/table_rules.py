"""What a table's file chooses and sets for a run: its rules, and the search that it names.

What a search chose is read from its own file, results/search/NAME.csv: its lines are trials, the
chosen one first, and the columns between trial and n are settings.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from dpbench.runs.config.search_path import groups
from dpbench.runs.config.table_file import Rule, TableFile, table_file
from dpbench.system.csv_lines import csv_lines
from dpbench.system.errors import UserError
from dpbench.system.paths import searches_folder
from dpbench.system.validate import known_keys, one_of, spelled_number

ARM = "table.arm"
"""The key that selects a row of a table whose rows differ by more than their method."""

OUTER = 0.1
"""The share of a range at either end in which a chosen value is at its edge."""

DECADE = 10
"""Values that differ by this factor were drawn on a log scale."""


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
    table's own search, unless a rule names another or there are several by seed (`of_seed`).

    A search that has not been made sets nothing: it may be the one that is about to run.
    """
    for rule in rules(table, choices):
        yield rule.set
        yield _choice(rule.tuned, table, choices)
    if table.searches == 1 and not _tuned_by_rules(table, choices):
        yield _choice(table.tuned, table, choices)


def of_seed(table: TableFile, choices: Mapping[str, str], seed: int) -> Mapping[str, Any]:
    """The values chosen by that of a row's several searches which a seed stands for."""
    if table.searches == 1 or _tuned_by_rules(table, choices):
        return {}
    return _choice(table.tuned, table, choices, seed)


def _tuned_by_rules(table: TableFile, choices: Mapping[str, str]) -> list[str]:
    return [rule.tuned for rule in rules(table, choices) if rule.tuned]


def _choice(
    tuned: str, table: TableFile, choices: Mapping[str, str], seed: int = 0
) -> Mapping[str, Any]:
    chosen = settings_of_search(_search_name(tuned, table, choices, seed)) if tuned else None
    return chosen or {}


def search_of(table: TableFile, choices: Mapping[str, str], seed: int) -> str:
    """The name of the search whose choice has the last word on these choices and this seed, or
    ""."""
    *_, tuned = table.tuned, *_tuned_by_rules(table, choices)
    return _search_name(tuned, table, choices, seed) if tuned else ""


def _search_name(tuned: str, table: TableFile, choices: Mapping[str, str], seed: int) -> str:
    """The name of a search, with options for `{GROUP}`, the arm for `{arm}`, and for `{search}` the
    number of the seed's search."""
    number = {"search": table.search_number(seed)} if table.searches > 1 else {}
    try:
        return tuned.format_map({**choices, **number, "arm": table.arm})
    except (KeyError, ValueError, IndexError) as error:
        raise UserError(
            "table.tuned must be the name of a search, in which {GROUP} stands for an option, "
            "{arm} for the row and, if table.searches says how many there are, {search} for the "
            f"number of one, got {tuned!r}."
        ) from error


def chosen_by_table(table: TableFile, choices: Mapping[str, str]) -> list[str]:
    """The options that the table's rules choose, as overrides."""
    chosen = {
        group: option for rule in rules(table, choices) for group, option in rule.choose.items()
    }
    return [f"{group}={option}" for group, option in chosen.items()]


def settings_of_search(name: str) -> dict[str, Any] | None:
    """The settings of the trial that a search chose, nested; None if there is no such search."""
    if (tried := _tried(name)) is None:
        return None
    chosen = OmegaConf.from_dotlist([f"{key}={values[0]}" for key, values in tried.items()])
    return cast(dict[str, Any], OmegaConf.to_container(chosen))


def chose_an_edge(name: str) -> bool:
    """Whether a search chose a fraction in the outer tenth of the values that it tried."""
    if not (lines := _lines(name)):
        return False
    keys = _keys(lines, _committed(name))
    return is_at_edge([{k: line[k] for k in keys} for line in lines], start_numbers(lines))


def is_at_edge(tried: Sequence[Mapping[str, str]], special: Mapping[str, float]) -> bool:
    """Whether the first of the settings tried has a fraction in the outer tenth of all that have
    numbers for it. Integers are choices such as numbers of bands, whose ends are their own.
    special: the numbers of the method's special case."""
    found = [numbers(settings) for settings in tried]
    for key in found[0]:
        values = [one[key] for one in found if key in one]
        fractions = len(values) == len(tried) and not all(map(float.is_integer, values))
        if fractions and outer_end(values, special.get(key)):
            return True
    return False


def outer_end(values: Sequence[float], special: float | None = None) -> str:
    """The end, `lower` or `upper`, in whose tenth of all values tried the first one lies; "" for
    neither. special: the value of the method's special case: no end lies on its side."""
    if values[0] == special:
        return ""
    share = _place([value for value in values if value != special])
    end = "lower" if share <= OUTER else "upper" if share >= 1 - OUTER else ""
    return "" if special is not None and (special < values[0]) == (end == "lower") else end


def _place(values: Sequence[float]) -> float:
    """Where among the values that were tried the first one lies, from 0 to 1."""
    low, high, value = min(values), max(values), values[0]
    if low > 0 and high > DECADE * low:
        low, high, value = map(math.log, (low, high, value))
    return (value - low) / (high - low) if high > low else 0.5


def trials_of(name: str) -> list[dict[str, str]]:
    """The lines of a search's trials by column, without those of its finalists' other seeds."""
    return [line for line in _lines(name) or () if not line.get("stage")]


def chosen_text(name: str, folder: Path) -> dict[str, str]:
    """The settings, as text by key, that a search in a folder chose, or else a committed one; none
    if neither chose any."""
    for path in (folder / f"{name}.csv", _committed(name)):
        if (lines := _read(path)) and not lines[0].get("failed"):
            return {key: lines[0][key] for key in _keys(lines, path)}
    return {}


def numbers(settings: Mapping[str, str]) -> dict[str, float]:
    """The settings that are numbers."""
    read = {key: spelled_number(text) for key, text in settings.items()}
    return {key: value for key, value in read.items() if isinstance(value, float)}


def start_numbers(lines: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """The numbers by which the start of a search is the method's special case."""
    mark = next((line["start"] for line in lines if line.get("start")), "")
    return numbers(dict(word.split("=", 1) for word in mark.split() if "=" in word))


def _tried(name: str) -> dict[str, list[str]] | None:
    if (lines := _lines(name)) is None:
        return None
    return {key: [line[key] for line in lines] for key in _keys(lines, _committed(name))}


def _keys(lines: Sequence[Mapping[str, str]], path: Path) -> list[str]:
    columns = list(lines[0])
    if not {"trial", "n"} <= {*columns}:
        raise _no_search(path)
    return columns[columns.index("trial") + 1 : columns.index("n")]


@functools.cache
def _lines(name: str) -> list[dict[str, str]] | None:
    return _read(_committed(name))


def _committed(name: str) -> Path:
    return searches_folder() / f"{name}.csv"


def _read(path: Path) -> list[dict[str, str]] | None:
    if not path.is_file():
        return None
    try:
        return csv_lines(path.read_bytes().decode(), path.name)
    except (UnicodeDecodeError, UserError) as error:
        raise _no_search(path) from error


def _no_search(path: Path) -> UserError:
    return UserError(f"{path} is not the file of a search: restore or delete it.")
