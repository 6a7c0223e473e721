"""Fills in what is public about the user's own data: the checksum, the size, the classes.

A run is named by these, and not by a path: other data give another run. No module that is imported
here imports torch, so that a finished run is found quickly.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dpbench.data.custom import hub, table, texts
from dpbench.data.custom.checksums import source_path, verified
from dpbench.data.custom.image_files import class_folders, classes_of
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
    found = {"name": _name(str(place)), **source.describe(_Settings(node))}
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


def _csv(settings: Settings) -> dict[str, Any]:
    path = source_path("dataset.file", settings["file"], "file")
    checksum = verified("dataset.file", path, settings.get("checksum"))
    if not isinstance(settings["separator"], str) or not settings["separator"]:
        raise UserError("dataset.separator must be text, such as ','.")
    frame = table.read_csv(path, settings["separator"])
    found = {"checksum": checksum, **_of_table(settings, frame, str(path))}
    if texts.has_texts(settings):
        columns = texts.text_columns(settings["text"], frame)
        found["text"] = columns[0] if len(columns) == 1 else [*columns]
    return found


def _of_table(settings: Settings, frame: Any, name: str) -> dict[str, Any]:
    columns = table.columns_of(settings, frame)
    several = len(columns.group) > 1
    group = [*columns.group] if several else next(iter(columns.group), None)
    named = {"target": columns.target, "group": group}
    lists = {"categorical": [*columns.categorical], "drop": [*columns.drop]}
    if texts.has_texts(settings):
        return {**named, **lists, **texts.describe_texts(settings, frame, name)}
    return {**named, **lists, **table.describe(frame, columns, name)}


def _place(settings: Settings) -> tuple[Any, ...]:
    keys = (settings["path"], settings["revision"], settings["part"])
    return *keys, settings.get("checksum")


def _checksum(settings: Settings) -> dict[str, Any]:
    checksum = hub.content_of(settings["path"], settings["revision"])
    return {"checksum": checksum} if checksum else {}


def _hub_table(settings: Settings) -> dict[str, Any]:
    frame = hub.table(*_place(settings))
    return _checksum(settings) | _of_table(settings, frame, settings["path"])


def _hub_images(settings: Settings) -> dict[str, Any]:
    rows = hub.read(*_place(settings))
    names, labels = hub.labels(rows, settings["target"])
    hub.check_images(rows, settings["image"])
    return _checksum(settings) | _of_images(names, len(labels))


def _folder(settings: Settings) -> dict[str, Any]:
    path = source_path("dataset.folder", settings["folder"], "folder")
    checksum = verified("dataset.folder", path, settings.get("checksum"))
    return {"checksum": checksum, **_of_images(classes_of(path), len(class_folders(path)))}


def _of_images(names: list[str], rows: int) -> dict[str, Any]:
    return {"rows": rows, "classes": len(names), "groups": names}


class Source(NamedTuple):
    """What `dataset=` loads the user's own data, the setting that names them, and the function that
    describes them."""

    option: str
    setting: str
    describe: Callable[[Settings], dict[str, Any]]


SOURCES = {
    "dpbench.data.custom.table_rows.CsvFile": Source("csv", "file", _csv),
    "dpbench.data.custom.table_rows.HubTable": Source("hub", "path", _hub_table),
    "dpbench.data.custom.image_rows.ImageFolder": Source("images", "folder", _folder),
    "dpbench.data.custom.image_rows.HubImages": Source("hub_images", "path", _hub_images),
}
"""By target."""
