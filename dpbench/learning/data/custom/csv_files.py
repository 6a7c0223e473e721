"""Reads files of rows, CSV or Parquet, and a test file of the publisher's own."""

import csv
import functools
import lzma
import warnings
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tarfile import TarError
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype, is_string_dtype
from pandas.errors import EmptyDataError, ParserError, ParserWarning

from dpbench.learning.data.custom.checksums import source_path, verified
from dpbench.learning.data.custom.column_types import FEW
from dpbench.learning.data.custom.columns import marks_of
from dpbench.learning.data.custom.quotes import QUOTE, LineSpan, joined_lines, swallowed
from dpbench.learning.data.custom.sizes import size_of
from dpbench.learning.data.custom.source import OwnTable, TestRows
from dpbench.system.errors import UserError, first_line, warn
from dpbench.system.validate import boolean, integer, one_of, quoted, shown

TAB, SPELLED_TAB = "\t", r"\t"

PARQUET = ".parquet"

OWN_FORMATS = (".csv", ".tsv")
"""The endings of files that are read here for dataset=hub too."""

OTHER_FORMATS = (
    *(".arrow", ".json", ".jsonl", ".ndjson"),
    *(".numbers", ".ods", ".xls", ".xlsb", ".xlsm", ".xlsx"),
)
"""The endings of tables that dataset=hub reads, and of spreadsheets."""

UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, BadZipFile, TarError)
"""What is raised for a damaged file, packed or not."""


def read(settings: Mapping[str, Any]) -> OwnTable:
    """The rows of the file that settings name, and then those of its test file; UserError for files
    that are not tables of one kind, and for others than the expected ones."""
    frame, checksum = verified_file(settings, "file", "checksum")
    name, checksums = str(settings["file"]), {"checksum": checksum}
    tested = settings.get("test_file")
    if tested is None:
        return OwnTable(name, frame, checksums)
    what = f"dataset.test_file={tested}"
    test, test_checksum = verified_file(settings, "test_file", "test_checksum")
    if test_checksum == checksum:
        raise UserError(
            f"{what} has the rows that are trained on: give a file of others, or none, to hold out "
            "dataset.test_share of the rows."
        )
    if different := [*frame.columns.symmetric_difference(test.columns, sort=False)]:
        raise UserError(
            f"{what} and dataset.file={name} must have the same columns, but only one of them has "
            f"{quoted(different[0])}."
        )
    if not len(test):
        raise UserError(f"{what} has no rows.")
    texts = tuple(n for n in frame if is_string_dtype(frame[n]) != is_string_dtype(test[n]))
    if texts:  # 01 is a number in one file, and a text where another row has 1A
        frame, _ = verified_file(settings, "file", "checksum", texts)
        test, _ = verified_file(settings, "test_file", "test_checksum", texts)
    rows = pd.concat([frame, test[frame.columns]], ignore_index=True)
    checksums["test_checksum"] = test_checksum
    return OwnTable(name, rows, checksums, TestRows(what, len(test)))


def verified_file(
    settings: Mapping[str, Any], key: str, expected: str, texts: tuple[str, ...] = ()
) -> tuple[pd.DataFrame, str]:
    """The rows of the file that a setting names, and its checksum; UserError for another one than
    the setting `expected` has. texts: columns that are."""
    path = source_path(f"dataset.{key}", settings[key], "file")
    found = verified(f"dataset.{key}", path, settings.get(expected), f"dataset.{expected}")
    return read_file(settings, key, path, texts), found


def read_file(
    settings: Mapping[str, Any], key: str, path: Path, texts: tuple[str, ...] = ()
) -> pd.DataFrame:
    """The rows of a file, whose columns `texts` are texts; UserError for a file that is no table.

    key: the setting that names it. Warns of a first line that is a row, and of others that a quote
    joins, unless settings have the number of rows.
    """
    file = _file(settings, key, path)
    may_be_large = boolean("dataset.large", settings.get("large", False))
    status = path.stat()
    read = _read(file, may_be_large, texts, status.st_size, status.st_mtime_ns)
    if len(read.frame.columns) == 1 and settings.get("task") != "language_model":
        way = "set dataset.separator, such as \"dataset.separator=';'\""
        if "separator" not in settings:
            way = "save it with commas between its values"
        raise UserError(f"{path.name} has a single column, {quoted(read.frame.columns[0])}: {way}.")
    if settings.get("rows") is None:
        if read.joined:
            raise swallowed(file.what, len(read.frame), read.joined)
        if read.first:
            warn(
                f"the first line of {file.what} is taken as the names of columns, and looks like a "
                f"row: {shown(read.first)}; set dataset.header=none if it is one."
            )
    return read.frame


class _File(NamedTuple):
    """A CSV file. what: the setting that names it; for the others, see `TableRows`."""

    what: str
    path: Path
    separator: str
    quotes: str
    header: str
    encoding: str
    missing: tuple[str | float, ...]
    skip: int
    decimal: str
    thousands: str | None


class _FileRows(NamedTuple):
    """What is read. joined: lines that seem to be several rows. first: the first line, if it names
    the columns and looks like a row."""

    frame: pd.DataFrame
    joined: LineSpan | None = None
    first: str = ""


def _file(settings: Mapping[str, Any], key: str, path: Path) -> _File:
    separator, quotes = settings.get("separator"), settings.get("quotes", "double")
    if separator is None:
        separator = TAB if path.suffix.lower() == ".tsv" else ","
    character = TAB if separator == SPELLED_TAB else separator
    if not isinstance(character, str) or len(character) != 1:
        raise UserError(
            f"dataset.separator must be one character, such as ',', or '{SPELLED_TAB}' for a tab, "
            f"got {quoted(separator)}."
        )
    one_of("dataset.quotes", quotes, ("double", "single", "none"))
    header, encoding = settings.get("header", "first"), settings.get("encoding", "utf-8")
    one_of("dataset.header", header, ("first", "none"))
    try:
        "".encode(encoding)
    except (LookupError, TypeError) as error:
        raise UserError(
            f"dataset.encoding={quoted(encoding)} is unknown: write utf-8, utf-16, or that of an "
            "older system, such as cp1252 (Windows in Western Europe) or shift_jis."
        ) from error
    missing = marks_of(settings)
    skip = integer("dataset.skip", settings.get("skip", 0), least=0)
    decimal, thousands = settings.get("decimal", "."), settings.get("thousands")
    one_of("dataset.decimal", decimal, (".", ","))
    if thousands is not None:
        one_of("dataset.thousands", thousands, tuple({*",.' "} - {decimal}))
    what = f"dataset.{key}={path}"
    written = quotes, header, encoding, missing, skip, decimal, thousands
    return _File(what, path, character, *written)


@functools.lru_cache(maxsize=2)
def _read(file: _File, may_be_large: bool, as_text: tuple[str, ...], *_: int) -> _FileRows:
    """The rows, cached until the file changes: its settings and its data are read separately."""
    ending = file.path.suffix.lower()
    if ending == PARQUET:
        return _FileRows(_parquet(file))
    if ending in OTHER_FORMATS:  # a line of it may look like names of columns
        raise UserError(
            f"{file.what} is no CSV file: save it as one, or read JSON or Arrow by dataset=hub."
        )
    read = functools.partial(
        pd.read_csv,
        file.path,
        sep=file.separator,
        skipinitialspace=True,
        index_col=False,
        encoding=file.encoding,
        quoting=csv.QUOTE_NONE if file.quotes == "none" else csv.QUOTE_MINIMAL,
        quotechar="'" if file.quotes == "single" else QUOTE,
        skiprows=file.skip,
        decimal=file.decimal,
        thousands=file.thousands,
    )
    header = None if file.header == "none" else 0
    marks = [*file.missing] or None
    with warnings.catch_warnings(action="error", category=ParserWarning):
        try:
            size = size_of(file.path, file.separator, whole=may_be_large)
            if not may_be_large:
                size.check(file.what)
            frame = read(header=header, low_memory=False, na_values=marks)
            first = read(header=None, nrows=1, dtype=str).iloc[0]
            if header is None:
                frame.columns = [str(number + 1) for number in frame.columns]
            texts = [
                number
                for number, name in enumerate(frame)
                # The text NA or None is no value to pandas.
                if name in as_text or (is_string_dtype(frame[name]) and frame[name].isna().any())
            ]
            if texts:
                again = read(
                    header=header,
                    usecols=texts,
                    dtype=str,
                    keep_default_na=False,
                    na_values=["", *map(str, file.missing)],
                )
                frame[frame.columns[texts]] = again.set_axis(frame.columns[texts], axis=1)
        except (EmptyDataError, ParserError, ParserWarning, ValueError, *UNREADABLE) as error:
            why = first_line(error, type(error).__name__).rstrip(".")
            if isinstance(error, ParserWarning):
                why = "a row has more values than the first line, which has to have their names"
            raise UserError(
                f"{file.what} is not a table of values separated by {file.separator!r}: {why}; "
                "dataset.separator, dataset.quotes, dataset.encoding and dataset.skip say how it "
                "is written."
            ) from error
    has_names = header is not None
    may_join = file.quotes == "double" and size.lines > len(frame) + has_names + file.skip
    encoding = "utf-8-sig" if file.encoding == "utf-8" else file.encoding
    joined = joined_lines(file.path, file.separator, frame, encoding) if may_join else None
    line = file.separator.join(first.fillna("")) if has_names and is_row(first, frame) else ""
    return _FileRows(frame, joined, line)


def _parquet(file: _File) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(file.path)
        # Columns that were set as an index are columns still.
        frame = frame.reset_index() if any(frame.index.names) else frame
    except MemoryError:
        raise
    except Exception as error:  # pandas and pyarrow document no types
        raise UserError(f"{file.what} cannot be read: {first_line(error).rstrip('.')}.") from error
    for name in frame:
        if not isinstance(name, str):
            raise UserError(f"{file.what} has a column named {name}: name each by one text.")
    return frame


def is_row(names: Sequence[str], frame: pd.DataFrame) -> bool:
    """Whether a first line could be a row of the table below it.

    It is, if each column of numbers is named by a number that is near them, and each of a few
    categories by one of these. Numbers at equal distances are names: years, or places of pixels.
    """
    numbers, categories = list[float](), 0
    for name, (_, column) in zip(names, frame.items(), strict=True):
        if not isinstance(name, str):  # empty
            continue
        if is_numeric_dtype(column) and not is_bool_dtype(column):
            number = pd.to_numeric(name, errors="coerce")
            low, high = column.min(), column.max()
            if not low - (high - low) <= number <= high + (high - low):
                return False
            numbers.append(number)
        elif column.nunique() <= FEW:
            if name not in {*map(str, column.unique())}:
                return False
            categories += 1
    return bool(categories or (numbers and not _are_names(numbers)))


def _are_names(numbers: Sequence[float]) -> bool:
    steps = np.diff(numbers)
    return len(steps) > 0 and bool(steps[0] > 0 and np.allclose(steps, steps[0]))
