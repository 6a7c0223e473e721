"""Reads YAML files of the configuration, and reports broken ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from dpbench.runs.config import search_path
from dpbench.system.errors import UserError, first_line
from dpbench.system.validate import quoted


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a YAML file, read without Hydra; UserError unless it is a valid mapping."""
    with broken_files_named(), path.open(encoding="utf-8") as file:
        settings = yaml.safe_load(file)
    if not isinstance(settings, dict):
        raise UserError(f"{path} must be a mapping of settings, got {quoted(settings)}.")
    return settings


@contextmanager
def broken_files_named() -> Iterator[None]:
    """UserError, with file and line, for a YAML file that cannot be parsed."""
    try:
        yield
    except yaml.YAMLError as error:
        mark, problem = (getattr(error, name, None) for name in ("problem_mark", "problem"))
        place = f"{mark.name}, line {mark.line + 1}" if mark else "a file of the configuration"
        raise UserError(f"{place} is not valid YAML: {problem or first_line(error)}.") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{search_path.undecodable()} is not UTF-8 text: save it as that."
        ) from error
