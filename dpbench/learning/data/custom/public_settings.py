"""Fills in what is public about the user's own data: the checksum, the size, the classes.

A run is named by these, and not by a path: other data give another run. No module that is imported
here imports torch, so that a finished run is found quickly.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dpbench.learning.data.custom import csv_files, hub, oddities, table, texts
from dpbench.learning.data.custom.checksums import source_path, verified
from dpbench.learning.data.custom.columns import TestRows, columns_of
from dpbench.learning.data.custom.image_files import images_in, warn_of_copies
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
    rows = csv_files.csv_rows(settings)
    test = TestRows(f"dataset.test_file={settings.get('test_file')}", rows.test_rows or 0)
    described = _of_table(settings, rows.frame, str(settings["file"]), test)
    found = {"checksum": rows.checksum, **described}
    if rows.test_checksum is not None:
        found |= {"test_checksum": rows.test_checksum, **_test_rows(rows.test_rows)}
    if texts.has_texts(settings):
        columns = texts.text_columns(settings["text"], rows.frame)
        found["text"] = columns[0] if len(columns) == 1 else [*columns]
    return found


def _of_table(settings: Settings, frame: Any, name: str, test: TestRows) -> dict[str, Any]:
    columns = columns_of(settings, frame)
    several = len(columns.group) > 1
    group = [*columns.group] if several else next(iter(columns.group), None)
    named = {"target": columns.target, "group": group}
    lists = {"categorical": [*columns.categorical], "drop": [*columns.drop]}
    if texts.has_texts(settings):
        return {**named, **lists, **texts.describe_texts(settings, frame, name, test)}
    described = table.describe(frame, columns, name, test)
    oddities.warn_of_target_leaks(frame, columns, name)
    return {**named, **lists, **described}


def _content(settings: Settings, rows: hub.Rows) -> dict[str, Any]:
    """What identifies the rows that the library loads, beside the commit on the hub."""
    hub.warn_of_unused(rows, settings)
    checksum = hub.content_of(settings["path"], settings["revision"])
    return ({"checksum": checksum} if checksum else {}) | _test_rows(rows.test)


def _test_rows(count: int | None) -> dict[str, Any]:
    return {} if count is None else {"test_rows": count}


def _hub_table(settings: Settings) -> dict[str, Any]:
    rows = hub.read(settings)
    frame, test = hub.table(rows, settings), _test(settings, rows)
    return _content(settings, rows) | _of_table(settings, frame, settings["path"], test)


def _test(settings: Settings, rows: hub.Rows) -> TestRows:
    return TestRows(f"dataset.test_part={settings.get('test_part')}", rows.test or 0)


def _hub_images(settings: Settings) -> dict[str, Any]:
    rows = hub.read(settings)
    names, labels = hub.labels(rows.all, target := settings["target"])
    hub.check_images(rows.all, settings["image"])
    classes = pd.Series(np.array(names)[labels], name=target)
    table.check_test_labels(classes, _test(settings, rows))
    place = f"dataset.path={settings['path']}"
    return _content(settings, rows) | _of_images(place, names, len(labels))


def _folder(settings: Settings) -> dict[str, Any]:
    path = source_path("dataset.folder", settings["folder"], "folder")
    checksum, images = verified("dataset.folder", path, settings.get("checksum")), images_in(path)
    found = {"checksum": checksum, **_test_rows(images.test)}
    warn_of_copies(images)
    return found | _of_images(f"dataset.folder={path}", images.classes, len(images.files))


def _of_images(place: str, names: list[str], rows: int) -> dict[str, Any]:
    oddities.warn_of_spellings(place, names, "classes")
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
