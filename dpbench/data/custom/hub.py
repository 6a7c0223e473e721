"""Data that the `datasets` library loads: from the Hugging Face hub, or from files."""

import functools
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpbench.data.custom.checksums import checksum, files_of, verified
from dpbench.data.custom.column_types import plain, structure
from dpbench.data.custom.image_files import Named
from dpbench.data.fetch.library import library
from dpbench.system.errors import Unavailable, UserError, first_line
from dpbench.system.validate import one_of, quoted

COMMIT = re.compile(r"[0-9a-f]{40}")

READERS = {
    ".arrow": "arrow",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".tsv": "csv",
}
"""The library's readers of single files, by the files' endings."""


def read(path: object, revision: object, part: str, expected: str | None) -> Any:
    """A part of a data set, as the library loads it; UserError if it is not the expected one.

    expected: the checksum of local files, if any.
    """
    content_of(path, revision, expected)
    place = Path(str(path)).expanduser()
    files = files_of(place) if place.exists() else ()
    return _load(str(place if place.exists() else path), revision, part, files)


def content_of(path: object, revision: object, expected: object = None) -> str | None:
    """The checksum of local files; None on the hub, where the commit identifies the content.

    Raises UserError for a name on the hub without a commit.
    """
    if not isinstance(path, str) or not path:
        raise UserError(f"dataset.path must be a name on the hub or a folder, got {quoted(path)}.")
    place = Path(path).expanduser()
    if place.exists():
        return verified("dataset.path", place, expected) if expected else checksum(place)
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", path):
        raise UserError(f"dataset.path={quoted(path)} is neither a folder nor a name on the hub.")
    if not isinstance(revision, str) or not COMMIT.fullmatch(revision):
        raise UserError(
            f"dataset.path={path} may change on the hub: set dataset.revision to a commit (40 hex "
            f"digits), not to {quoted(revision)}."
        )
    return None


@functools.lru_cache(maxsize=2)
def _load(place: str, revision: object, part: str, _: object) -> Any:
    datasets = library("datasets", "dataset=hub", extra="hub")
    prefix, name = f"dataset.path={place} cannot be", place
    options: dict[str, object] = {}
    if Path(place).is_file():
        name, options = _reader(Path(place))
    elif revision:
        options = {"revision": revision}
    try:
        return datasets.load_dataset(name, split=part, **options)
    except ConnectionError as error:
        raise Unavailable(f"{prefix} downloaded: {first_line(error)}.") from error
    except Exception as error:  # the library raises its own errors, and those of its readers
        why = first_line(error, type(error).__name__).rstrip(".")
        raise UserError(f"{prefix} loaded with dataset.part={part}: {why}.") from error


def _reader(file: Path) -> tuple[str, dict[str, object]]:
    """The library's reader of a file, with its options; UserError for one that it does not read."""
    ending = file.suffix.lower()
    if ending not in READERS:
        raise UserError(
            f"dataset.path={file} is not a table that can be read: save it with one of the endings "
            f"{', '.join(READERS)}, or give the path of its folder."
        )
    separator = {"sep": "\t"} if ending == ".tsv" else {}
    return READERS[ending], {"data_files": str(file), **separator}


def table(path: object, revision: object, part: str, expected: str | None) -> pd.DataFrame:
    """`read` as a data frame, in which rows that the library marks as unlabelled have no class."""
    rows = read(path, revision, part, expected)
    return _without_unlabelled(rows.to_pandas(), rows.features)


def _without_unlabelled(frame: pd.DataFrame, features: Any) -> pd.DataFrame:
    for column, feature in features.items():
        if type(feature).__name__ == "ClassLabel" and (frame[column] < 0).any():
            frame[column] = frame[column].where(frame[column] >= 0)
    return frame


def labels(rows: Any, column: str) -> tuple[list[str], np.ndarray]:
    """The names of the classes, and the class of each row [n]; UserError for an unknown column."""
    one_of("dataset.target", column, rows.column_names)
    names = getattr(rows.features[column], "names", None)
    frame = _without_unlabelled(rows.select_columns(column).to_pandas(), rows.features)
    values = plain(frame[column])
    if what := structure(values):
        raise UserError(f"dataset.target={column} has {what}, not classes: choose another column.")
    if values.isna().any():
        raise UserError(f"dataset.target={column} has rows without a class: filter them out.")
    classes = list(range(len(names))) if names else sorted(values.unique().tolist())
    numbers = {value: number for number, value in enumerate(classes)}
    return [str(name) for name in names or classes], np.array([numbers[value] for value in values])


def images(rows: Any, column: str) -> Iterator[Named]:
    """The encoded images of a column; UserError for a row without one."""
    datasets = library("datasets", "dataset=hub_images", extra="hub")
    encoded = rows.cast_column(column, datasets.Image(decode=False))[column]
    for number, image in enumerate(encoded, 1):
        if image is None:
            raise UserError(f"dataset.image={column} has no image in row {number}: remove the row.")
        place = image["path"]
        name = f"the image in row {number}" + (f", {place}," if place else "")
        data = image["bytes"]
        yield name, Path(place) if data is None else BytesIO(data)


def check_images(rows: Any, column: str) -> None:
    """UserError for a column that is unknown, or has no images."""
    one_of("dataset.image", column, rows.column_names)
    if type(rows.features[column]).__name__ != "Image":
        raise UserError(f"dataset.image={column} is not an image column.")
