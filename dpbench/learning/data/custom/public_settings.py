"""Fills in what is public about the user's own data: the checksum, the size, the classes.

A run is named by these, and not by a path: other data give another run. No module that is imported
here imports torch, so that a finished run is found quickly.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dpbench.learning.data.custom import (
    csv_files,
    hub,
    image_files,
    oddities,
    table,
    texts,
)
from dpbench.learning.data.custom.column_types import plain
from dpbench.learning.data.custom.columns import Columns, columns_of, marks_of
from dpbench.learning.data.custom.people import are_of_column, described
from dpbench.learning.data.custom.source import FOLDER, OwnTable
from dpbench.system.errors import UserError

Settings = Mapping[str, Any]

NAMING = ("target", "group", "categorical", "drop", "text")
"""The settings that name columns, which are completed too: a number becomes the name."""


class _Settings(dict[str, Any]):
    """The settings of a data set, some of which its own file may have left out."""

    def __missing__(self, key: str) -> Any:
        raise UserError(
            f"dataset.{key} is missing: begin the file of your data set with "
            f"`defaults: [{SOURCES[self['_target_']].option}]`, which has all settings of its kind."
        )


def with_public_settings(node: Any, users: Any = None) -> tuple[Any, Any]:
    """The settings of a data set and of its users, completed from the data if these are the user's
    own.

    Other settings are unchanged. Raises UserError for data that cannot be read, that lack what the
    settings name, or that contradict the settings.
    """
    node = _without_texts(node)
    target = str(node.get("_target_")) if isinstance(node, Mapping) else ""
    source = SOURCES.get(target)
    if source is None or node.get(source.setting) is None:
        return node, users
    place = node[source.setting]
    settings = _Settings(node)
    rows = source.read(settings)
    people: dict[str, Any] = {}
    if are_of_column(users):
        people, most = described(rows, users, marks_of(settings))
        users = {**users, "column": people["user"], "most": most}
    elif node.get("user") is not None:
        raise UserError(f"dataset.user={node['user']} needs users=column, which sets it.")
    settings = _Settings({**node, **people})
    tested = {"test_rows": rows.test.number} if rows.test.number else {}
    found = {"name": _name(str(place)), **rows.checksums, **tested, **people}
    found |= source.describe(settings, rows)
    for key in found.keys() - {"name", *NAMING}:
        if node.get(key) not in (None, found[key]):
            raise UserError(
                f"dataset.{key} is {node[key]}, but {place} has {found[key]}: the file is "
                "truncated or a different one, or the setting is wrong."
            )
    return {**node, **found, "name": node.get("name") or found["name"]}, users


def _without_texts(node: Any) -> Any:
    """Settings without those of texts, if there are none: older runs of tables have none either."""
    if not isinstance(node, Mapping) or texts.has_texts(node):
        return node
    return {key: value for key, value in node.items() if key not in texts.SETTINGS}


def display_name(option: str, node: Any) -> str:
    """The choice of data set in a record: for the user's own, the option and the data's name."""
    own = isinstance(node, Mapping) and node.get("_target_") in SOURCES and node.get("name")
    return f"{option}:{node['name']}" if own else option


def _name(source: str) -> str:
    path = Path(source)
    return re.sub(r"[^\w.-]+", "_", path.stem if path.is_file() else path.name).strip("._-") or "x"


def _table(settings: Settings, rows: OwnTable) -> dict[str, Any]:
    frame, columns = rows.frame, columns_of(settings, rows.frame)
    lists = {"categorical": [*columns.categorical], "drop": [*columns.drop]}
    named = columns.as_settings | lists
    if texts.has_texts(settings):
        text = texts.text_columns(settings["text"], frame)
        described = texts.describe_texts(settings, frame, rows.name, rows.test)
        _warn_of_people(rows, columns, [*dict.fromkeys((*text, columns.target))])
        return {**named, "text": text[0] if len(text) == 1 else [*text], **described}
    frame = columns.plain(frame)
    described = table.describe(frame, columns, rows.name, rows.test)
    oddities.warn_of_target_leaks(frame, columns, rows.name)
    _warn_of_people(rows, columns, [*columns.features(frame), columns.target])
    return {**named, **described}


def _warn_of_people(rows: OwnTable, columns: Columns, used: list[str]) -> None:
    if columns.user is None:
        oddities.warn_of_people(rows.frame, rows.name)
    series = [plain(rows.frame[name]) for name in used]
    oddities.warn_of_copies(series, rows.test, rows.name, columns.user is not None)


def _images(settings: Settings, rows: OwnTable) -> dict[str, Any]:
    columns = table.image_columns(settings, rows)
    image_files.warn_of_copied_images(rows, columns.target)
    if columns.user is None:
        oddities.warn_of_people(rows.frame.drop(columns=FOLDER, errors="ignore"), rows.name)
    found = table.describe_images(rows, columns)
    return found | ({} if columns.target == FOLDER else columns.as_settings)


class OwnSource(NamedTuple):
    """What `dataset=` loads the user's own data, the setting that names them, and the functions
    that read and describe them."""

    option: str
    setting: str
    read: Callable[[Settings], OwnTable]
    describe: Callable[[Settings, OwnTable], dict[str, Any]]


SOURCES = {
    "dpbench.data.custom.table_rows.CsvFile": OwnSource("csv", "file", csv_files.read, _table),
    "dpbench.data.custom.table_rows.HubTable": OwnSource("hub", "path", hub.read, _table),
    "dpbench.data.custom.image_rows.ImageFolder": OwnSource(
        "images", "folder", image_files.read, _images
    ),
    "dpbench.data.custom.image_rows.HubImages": OwnSource("hub_images", "path", hub.read, _images),
}
"""By target."""
