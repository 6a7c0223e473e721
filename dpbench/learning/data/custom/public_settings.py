"""Fills in what is public about the user's own data: the checksum, the size, the classes.

A run is named by these, and not by a path: other data give another run. No module that is imported
here imports torch, so that a finished run is found quickly.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dpbench.learning.data.custom import hub, image_files, oddities, table, table_files, texts
from dpbench.learning.data.custom.columns import columns_of
from dpbench.learning.data.custom.source import Table
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


def with_public_settings(node: Any) -> Any:
    """The settings of a data set, completed from its data if these are the user's own.

    Other settings are unchanged. Raises UserError for data that cannot be read, that lack what the
    settings name, or that contradict the settings.
    """
    node = _without_texts(node)
    target = str(node.get("_target_")) if isinstance(node, Mapping) else ""
    source = SOURCES.get(target)
    if source is None or node.get(source.setting) is None:
        return node
    place = node[source.setting]
    settings = _Settings(node)
    rows = source.read(settings)
    found = {"name": _name(str(place)), **rows.public, **source.describe(settings, rows)}
    for key in found.keys() - {"name", *NAMING}:
        if node.get(key) not in (None, found[key]):
            raise UserError(
                f"dataset.{key} is {node[key]}, but {place} has {found[key]}: the file is "
                "truncated or a different one, or the setting is wrong."
            )
    return {**node, **found, "name": node.get("name") or found["name"]}


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


def _table(settings: Settings, rows: Table) -> dict[str, Any]:
    frame, columns = rows.frame, columns_of(settings, rows.frame)
    several = len(columns.group) > 1
    group = [*columns.group] if several else next(iter(columns.group), None)
    named = {"target": columns.target, "group": group}
    lists = {"categorical": [*columns.categorical], "drop": [*columns.drop]}
    if texts.has_texts(settings):
        text = texts.text_columns(settings["text"], frame)
        described = texts.describe_texts(settings, frame, rows.name, rows.test)
        return {**named, **lists, "text": text[0] if len(text) == 1 else [*text], **described}
    described = table.describe(frame, columns, rows.name, rows.test)
    oddities.warn_of_target_leaks(frame, columns, rows.name)
    return {**named, **lists, **described}


def _images(settings: Settings, rows: Table) -> dict[str, Any]:
    target = settings.get("target", image_files.CLASS)
    image_files.warn_of_copies(rows, target)
    return table.describe_images(rows, target)


class Source(NamedTuple):
    """What `dataset=` loads the user's own data, the setting that names them, and the functions
    that read and describe them."""

    option: str
    setting: str
    read: Callable[[Settings], Table]
    describe: Callable[[Settings, Table], dict[str, Any]]


SOURCES = {
    "dpbench.data.custom.table_rows.CsvFile": Source("csv", "file", table_files.read, _table),
    "dpbench.data.custom.table_rows.HubTable": Source("hub", "path", hub.read, _table),
    "dpbench.data.custom.image_rows.ImageFolder": Source(
        "images", "folder", image_files.read, _images
    ),
    "dpbench.data.custom.image_rows.HubImages": Source("hub_images", "path", hub.read, _images),
}
"""By target."""
