"""The search space of a method, `search` in its file: what its paper tunes and on which scale."""

from typing import Any

from dpbench.runs.config.search_path import file_of, options
from dpbench.runs.config.yaml_files import read_settings
from dpbench.system.errors import UserError
from dpbench.system.validate import quoted

SEARCH = "search"
"""The key in the file of a method, which no run is composed of."""

START = "start"
"""The key of a search space that is no range."""


def space_of(method: str) -> dict[str, Any]:
    """The search space of a method, empty if its file has none; UserError for a broken one."""
    path = file_of("method", method)
    space = read_settings(path).get(SEARCH, {}) if path else {}
    if not isinstance(space, dict):
        raise UserError(f"{SEARCH} of {path} must be a mapping of ranges, got {quoted(space)}.")
    return space


def ranges_of(method: str) -> dict[str, str]:
    """The ranges of the space of a method by key, as on a command line."""
    return {key: str(value) for key, value in space_of(method).items() if key != START}


def searchable() -> list[str]:
    """The methods that have a search space."""
    return [method for method in options("method") if space_of(method)]
