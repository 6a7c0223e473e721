"""Data that the `datasets` library loads: from the Hugging Face hub, or from files."""

import functools
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dpbench.learning.data.custom.checksums import Files, checksum, files_of, verified
from dpbench.learning.data.custom.column_types import plain, structure
from dpbench.learning.data.custom.image_files import Named
from dpbench.learning.data.custom.quotes import NO_QUOTES, TAB, joined_lines, swallowed
from dpbench.learning.data.custom.sizes import Size
from dpbench.learning.data.fetch.library import library
from dpbench.system.errors import Unavailable, UserError, first_line
from dpbench.system.validate import one_of, quoted

COMMIT = re.compile(r"[0-9a-f]{40}")
TEST = "test"
SAVED = ("state.json", "dataset_dict.json")
"""Files of a folder that `save_to_disk` has written: of a data set, and of one with parts."""

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


class Rows(NamedTuple):
    """Rows as the library loads them. parts: the names of all parts of their data set. test: how
    many of the rows, the last, are of the test part; None without one."""

    all: Any
    parts: Collection[str]
    test: int | None = None


def read(settings: Mapping[str, Any]) -> Rows:
    """The part of a data set that settings name, and then its test part, if they name one.

    Raises UserError for other data than the expected, by their checksum.
    """
    path, revision, part = (settings[key] for key in ("path", "revision", "part"))
    content_of(path, revision, settings.get("checksum"))
    place = Path(str(path)).expanduser()
    files = files_of(place) if place.exists() else ()
    name, may_be_large = str(place if place.exists() else path), settings.get("large")
    load = functools.partial(_load, name, revision, files, may_be_large)
    (rows, parts), test_part = load(part), settings.get("test_part")
    if test_part is None:
        return Rows(rows, parts)
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
    return Rows(joined, parts, len(test))


def warn_of_unused(rows: Rows, settings: Mapping[str, Any]) -> None:
    """Warn of a test part that the publisher gives and that nothing uses."""
    if rows.test is None and TEST in rows.parts and settings["part"] != TEST:
        warnings.warn(
            f"dataset.path={settings['path']} has a part of its own to test on, which is not used: "
            f"set dataset.test_part={TEST}, or test examples are drawn from "
            f"dataset.part={settings['part']}.",
            stacklevel=2,
        )


def content_of(path: object, revision: object, expected: object = None) -> str | None:
    """The checksum of local files; None on the hub, where the commit identifies the content.

    Raises UserError for a name on the hub without a commit.
    """
    if not isinstance(path, str) or not path:
        raise UserError(f"dataset.path must be a name on the hub or a folder, got {quoted(path)}.")
    place = Path(path).expanduser()
    if place.exists():
        return verified("dataset.path", place, expected) if expected else checksum(place)
    if place.suffix.lower() in READERS and revision is None:
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
def _load(
    place: str, revision: object, files: Files, may_be_large: object, part: str
) -> tuple[Any, Collection[str]]:
    """A part of a data set, and the names of all its parts; `files` keep the cache up to date."""
    datasets = library("datasets", "dataset=hub")
    prefix, name = f"dataset.path={place} cannot be", place
    options: dict[str, object] = {}
    if Path(place).is_file():
        name, options = _reader(Path(place))
    elif revision:
        options = {"revision": revision}
    try:
        if not may_be_large:
            _size_by_footers(files).check(f"dataset.path={place}")
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


def _size_by_footers(files: Files) -> Size:
    """The size of Parquet files, whose rows may be packed a thousandfold."""
    parquet = library("pyarrow.parquet")
    footers = [
        parquet.read_metadata(path) for path, _, _ in files if path.suffix.lower() == ".parquet"
    ]
    columns = max((footer.num_columns for footer in footers), default=0)
    groups = (f.row_group(place) for f in footers for place in range(f.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    return Size(sum(footer.num_rows for footer in footers), columns, size)


def _check_all_read(folder: Path, builder: Any) -> None:
    """UserError for a table in a folder that is of no part: the library takes the files that are
    named after parts, if any are, and of several formats one."""
    parts = builder.config.data_files or {}
    used = {Path(file).resolve() for files in parts.values() for file in files}
    for file, _, _ in files_of(folder):
        if file.suffix.lower() in READERS and file.resolve() not in used:
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
    """The library's reader of a file, with its options; UserError for one that it does not read."""
    ending = file.suffix.lower()
    if ending not in READERS:
        raise UserError(
            f"dataset.path={file} is not a table that can be read: save it with one of the endings "
            f"{', '.join(READERS)}, or give the path of its folder."
        )
    separator = {"sep": TAB} if ending == ".tsv" else {}
    return READERS[ending], {"data_files": str(file), **separator}


def table(rows: Rows, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Rows as a data frame, in which those that the library marks as unlabelled have no class.

    Raises UserError for a single column, for a large table, unless settings allow it, and for a CSV
    file in which quotes seem to join rows, unless settings have the number of rows.
    """
    what = f"dataset.path={settings['path']}"
    if not settings.get("large"):
        Size(len(rows.all), len(rows.all.column_names), rows.all.data.nbytes).check(what)
    if len(rows.all.column_names) == 1:
        raise UserError(
            f"the table has a single column, {quoted(rows.all.column_names[0])}: save it with "
            "commas (.csv) or tabs (.tsv) between values, or read it by dataset=csv."
        )
    frame = rows.all.to_pandas()
    place = Path(settings["path"]).expanduser()
    if settings.get("rows") is None and place.exists():
        _check_quotes(what, files_of(place), frame)
    return _without_unlabelled(frame, rows.all.features)


def _check_quotes(what: str, files: Files, frame: pd.DataFrame) -> None:
    for path, _, _ in files:
        ending = path.suffix.lower()
        if READERS.get(ending) == "csv" and (
            joined := joined_lines(path, TAB if ending == ".tsv" else ",", frame)
        ):
            raise swallowed(what, len(frame), joined, f"read it by dataset=csv, and {NO_QUOTES}")


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
    datasets = library("datasets", "dataset=hub_images")
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
