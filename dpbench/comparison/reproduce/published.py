"""The published files of a table or figure: what it was made by, and its records."""

from dataclasses import replace
from pathlib import Path

from dpbench.comparison.reproduce.target import Target, target_of
from dpbench.comparison.tables.page import command_of
from dpbench.runs.config.search_path import options
from dpbench.runs.records import reading
from dpbench.runs.records.reading import Unreadable, parse
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError


def published_target(page: Path) -> Target:
    """The target of a published page, by the command at its end.

    Raises UserError for a page without one, and for that of a table which is no option here.
    """
    command = command_of(text_of(page))
    if command is None:
        raise UserError(f"{page} does not end with its command: make it again.")
    name, *words = command
    if name not in options("table"):
        raise UserError(
            f"table={name} is unknown here: name the folder that has table/{name}.yaml with "
            "--config-dir."
        )
    return target_of(name, words)


def beside(target: Target, path: Path) -> Target:
    """The target with the results folder of a published file, for the searches beside it."""
    return replace(target, config=target.config.changed(results_dir=str(path.parents[1])))


def records_of(path: Path) -> list[Record]:
    """The readable records in a table's file; UserError for a file that cannot be read."""
    text = reading.text_of(path)
    if isinstance(text, Unreadable):
        raise UserError(f"{path} {text.reason}.")
    return [r for line in text.splitlines() if isinstance(r := parse(line, path.name), Record)]


def readable_records_of(path: Path) -> list[Record]:
    """The readable records in a table's file; none of a file that cannot be read."""
    try:
        return records_of(path)
    except UserError:
        return []


def text_of(path: Path) -> str:
    """The text of a published file; UserError where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"{path} cannot be read ({reason}).") from error
