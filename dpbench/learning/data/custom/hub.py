"""Data that the `datasets` library loads: from the Hugging Face hub, or from files."""

import functools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from dpbench.learning.data.custom.checksums import Files, files_of, verified
from dpbench.learning.data.custom.csv_files import OWN_FORMATS, PARQUET, read_file
from dpbench.learning.data.custom.sizes import Size
from dpbench.learning.data.custom.source import NO_TEST, Encoded, OwnTable, TestRows
from dpbench.learning.data.fetch.library import library
from dpbench.system.errors import Unavailable, UserError, first_line, warn
from dpbench.system.validate import one_of, quoted

COMMIT = re.compile(r"[0-9a-f]{40}")
TRAIN, TEST = "train", "test"
SAVED = ("state.json", "dataset_dict.json")
"""Files of a folder that `save_to_disk` has written: of a data set, and of one with parts."""

READERS = {
    ".arrow": "arrow",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    PARQUET: "parquet",
}
"""The library's readers of single files, by the files' endings."""


@dataclass(frozen=True, kw_only=True)
class HubRows:
    """Rows that the `datasets` library loads. path: their name on the hub, or a folder or file;
    revision: the commit on the hub; part: the split that is read; test_part: the test rows'."""

    path: str | None = None
    revision: str | None
    part: str
    test_part: str | None = None

    def read(self) -> OwnTable:
        return read(vars(self))


def read(settings: Mapping[str, Any]) -> OwnTable:
    """The part of a data set that settings name, and then its test part, if they name one.

    Raises UserError for other data than the expected, by their checksum.
    """
    path, part = settings["path"], settings["part"]
    content = content_of(path, settings["revision"], settings.get("checksum"))
    checksums, place = {"checksum": content} if content else {}, Path(str(path)).expanduser()
    if place.is_file() and place.suffix.lower() in OWN_FORMATS:
        if part != TRAIN or settings.get("test_part"):
            raise UserError(
                f"dataset.path={path} cannot be loaded with dataset.part={part}: "
                f"a file has the part {TRAIN} alone."
            )
        return OwnTable(str(path), read_file(settings, "path", place), checksums)
    rows, test = _rows(settings, place)
    if "image" in settings:
        one_of("dataset.image", settings["image"], rows.column_names)
        one_of("dataset.target", settings["target"], rows.column_names)
        if type(rows.features[settings["image"]]).__name__ != "Image":
            raise UserError(f"dataset.image={settings['image']} is not an image column.")
        names = getattr(rows.features[settings["target"]], "names", ())
        frame = frame_of(rows.remove_columns(settings["image"]))
        images = images_of(rows, settings["image"])
        return OwnTable(str(path), frame, checksums, test, tuple(names), images)
    if not settings.get("large"):
        size = Size(len(rows), len(rows.column_names), rows.data.nbytes)
        size.check(f"dataset.path={path}")
    return OwnTable(str(path), frame_of(rows), checksums, test)


def _rows(settings: Mapping[str, Any], place: Path) -> tuple[Any, TestRows]:
    """The rows as the library loads them, and which of them are to test on."""
    path, part, test_part = (settings.get(key) for key in ("path", "part", "test_part"))
    files = files_of(place) if place.exists() else ()
    name = str(place if place.exists() else path)
    load = functools.partial(_load, name, settings["revision"], files)
    rows, parts = load(part)
    if test_part is None:
        if TEST in parts and part != TEST and settings.get("rows") is None:
            warn(
                f"dataset.path={path} has a part of its own to test on, which is not used: set "
                f"dataset.test_part={TEST}, or test examples are drawn from dataset.part={part}."
            )
        return rows, NO_TEST
    if test_part == part:
        raise UserError(
            f"dataset.test_part={part} has the rows that are trained on: name another part, or "
            "none, to hold out dataset.test_share of the rows."
        )
    test, _ = load(test_part)
    if test.features != rows.features:
        raise UserError(
            f"the parts {part} and {test_part} of dataset.path={path} have different columns or "
            "types of columns."
        )
    joined = library("datasets", "dataset=hub").concatenate_datasets([rows, test])
    return joined, TestRows(f"dataset.test_part={test_part}", len(test))


def content_of(path: object, revision: object, expected: object) -> str | None:
    """The checksum of local files; None on the hub, where the commit identifies the content.

    Raises UserError for a name on the hub without a commit.
    """
    if not isinstance(path, str) or not path:
        raise UserError(f"dataset.path must be a name on the hub or a folder, got {quoted(path)}.")
    place = Path(path).expanduser()
    if place.exists():
        return verified("dataset.path", place, expected)
    if place.suffix.lower() in (*READERS, *OWN_FORMATS) and revision is None:
        raise UserError(f"dataset.path={path} is not a file, as seen from {Path.cwd()}.")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path):
        raise UserError(f"dataset.path={quoted(path)} is neither a folder nor a name on the hub.")
    if not isinstance(revision, str) or not COMMIT.fullmatch(revision):
        raise UserError(
            f"dataset.path={path} may change on the hub: set dataset.revision to a commit (40 hex "
            f"digits), not to {quoted(revision)}."
        )
    return None


@functools.lru_cache(maxsize=4)
def _load(place: str, revision: object, files: Files, part: str) -> tuple[Any, Collection[str]]:
    """A part of a data set, and the names of all its parts; `files` keep the cache up to date."""
    datasets = library("datasets", "dataset=hub")
    prefix, name = f"dataset.path={place} cannot be", place
    options: dict[str, object] = {}
    if Path(place).is_file():
        name, options = _reader(Path(place))
    elif revision:
        options = {"revision": revision}
    try:
        if any((Path(place) / file).is_file() for file in SAVED):
            return _saved(datasets.load_from_disk(place), part)
        if Path(place).is_dir():
            _check_all_read(Path(place), datasets.load_dataset_builder(place))
        rows = datasets.load_dataset(name, split=part, **options)
        return rows, rows.info.splits or ()
    except ConnectionError as error:
        raise Unavailable(f"{prefix} downloaded: {first_line(error)}.") from error
    except UserError:
        raise
    except StopIteration as error:
        raise UserError(f"{prefix} loaded with dataset.part={part}: it has no rows.") from error
    except Exception as error:  # the library raises its own errors, and those of its readers
        why = first_line(error.__cause__ or error, type(error).__name__).rstrip(".")
        raise UserError(f"{prefix} loaded with dataset.part={part}: {why}.") from error


def _check_all_read(folder: Path, builder: Any) -> None:
    """UserError for a table in a folder that is of no part: the library takes the files that are
    named after parts, if any are, and of several formats one."""
    parts = builder.config.data_files or {}
    used = {Path(file).resolve() for files in parts.values() for file in files}
    for file, _, _ in files_of(folder):
        if file.suffix.lower() in (*READERS, *OWN_FORMATS) and file.resolve() not in used:
            raise UserError(
                f"dataset.path={folder} has {file.relative_to(folder)}, which the datasets "
                "library does not read beside the other files: move it elsewhere, or give the "
                "path of one file."
            )


def _saved(data: Any, part: str) -> tuple[Any, Collection[str]]:
    """A part of what `save_to_disk` has written; a data set without parts is its `train`."""
    parts = data if isinstance(data, dict) else {"train": data}
    if part not in parts:
        raise ValueError(f"it has the parts {', '.join(parts)}")
    return parts[part], parts


def _reader(file: Path) -> tuple[str, dict[str, object]]:
    ending = file.suffix.lower()
    if ending not in READERS:
        raise UserError(
            f"dataset.path={file} is not a table that can be read: save it with one of the endings "
            f"{', '.join((*READERS, *OWN_FORMATS))}, or give the path of its folder."
        )
    return READERS[ending], {"data_files": str(file)}


def frame_of(rows: Any) -> pd.DataFrame:
    """Rows as a data frame, in which those that the library marks as unlabelled have no class."""
    frame = rows.to_pandas()
    for column, feature in rows.features.items():
        if type(feature).__name__ == "ClassLabel" and (frame[column] < 0).any():
            frame[column] = frame[column].where(frame[column] >= 0)
    return frame


def images_of(rows: Any, column: str) -> Iterator[Encoded]:
    """The encoded images of a column; UserError for a row without one."""
    datasets = library("datasets", "dataset=hub_images")
    encoded = rows.cast_column(column, datasets.Image(decode=False))[column]
    for number, image in enumerate(encoded, 1):
        if image is None:
            raise UserError(f"dataset.image={column} has no image in row {number}: remove the row.")
        place = image["path"]
        name = f"the image in row {number}" + (f", {place}," if place else "")
        data = image["bytes"]
        yield name, Path(place) if data is None else BytesIO(data)
