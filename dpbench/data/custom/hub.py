"""Data that the `datasets` library loads: from the Hugging Face hub, or from files."""

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np

from dpbench.data.custom.checksums import checksum, files_of, verified
from dpbench.data.fetch.library import library
from dpbench.errors import Unavailable, UserError, first_line
from dpbench.validate import one_of, quoted

COMMIT = re.compile(r"[0-9a-f]{40}")


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
        name, options = Path(place).suffix[1:], {"data_files": place}
    elif revision:
        options = {"revision": revision}
    try:
        return datasets.load_dataset(name, split=part, **options)
    except ConnectionError as error:
        raise Unavailable(f"{prefix} downloaded: {first_line(error)}.") from error
    except Exception as error:  # the library raises its own errors, and those of its readers
        why = first_line(error, type(error).__name__).rstrip(".")
        raise UserError(f"{prefix} loaded with dataset.part={part}: {why}.") from error


def labels(rows: Any, column: str) -> tuple[list[str], np.ndarray]:
    """The names of the classes, and the class of each row [n]; UserError for an unknown column."""
    one_of("dataset.target", column, rows.column_names)
    values, names = rows[column], getattr(rows.features[column], "names", None)
    classes = list(range(len(names))) if names else sorted(set(values) - {None})
    numbers = {value: number for number, value in enumerate(classes)}
    if not set(values) <= set(classes):
        raise UserError(f"dataset.target={column} has rows without a class: filter them out.")
    codes = np.array([numbers[value] for value in values], "int64")
    return [str(name) for name in names or classes], codes


def check_images(rows: Any, column: str) -> None:
    """UserError for a column that is unknown, or has no images."""
    one_of("dataset.image", column, rows.column_names)
    if type(rows.features[column]).__name__ != "Image":
        raise UserError(f"dataset.image={column} is not an image column.")
