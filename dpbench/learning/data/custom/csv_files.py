"""The user's own files of rows, and test files of their publisher's own."""

import csv
import functools
import lzma
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from tarfile import TarError
from typing import Any, NamedTuple
from zipfile import BadZipFile

import pandas as pd
from pandas.api.types import is_string_dtype
from pandas.errors import EmptyDataError, ParserError, ParserWarning

from dpbench.learning.data.custom.checksums import source_path, verified
from dpbench.learning.data.custom.columns import NONE
from dpbench.learning.data.custom.quotes import (
    NO_QUOTES,
    QUOTE,
    TAB,
    Lines,
    joined_lines,
    swallowed,
)
from dpbench.learning.data.custom.sizes import size_by_footers, size_of, unpacked
from dpbench.learning.data.custom.source import Table, TestRows
from dpbench.system.errors import UserError, first_line
from dpbench.system.validate import boolean, one_of, quoted

SPELLED_TAB = r"\t"
SEPARATORS = (TAB, ";", "|", ",")
"""The usual separators, the least common in names first."""

LONGEST_HEAD = 65_536
"""The most bytes of a line that are searched for a separator."""

OTHER_FORMATS = (".arrow", ".json", ".jsonl", ".ndjson")
"""The endings of tables that dataset=hub reads."""

PARQUET = ".parquet"

SPREADSHEETS = (".numbers", ".ods", ".xls", ".xlsb", ".xlsm", ".xlsx")

UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, BadZipFile, TarError)
"""What is raised for a damaged file, packed or not."""

OWN_FORMATS = (".csv", ".tsv")
"""The endings of files that are read here for dataset=hub too."""

DOUBLE = "double"
"""Values may be in double quotes."""


def read(settings: Mapping[str, Any]) -> Table:
    """The rows of the file that settings name, and then those of its test file; UserError for files
    that are not tables of one kind, and for others than the expected ones."""
    frame, checksum = _verified(settings, "file", "checksum")
    name, checksums, tested = (
        str(settings["file"]),
        {"checksum": checksum},
        settings.get("test_file"),
    )
    if tested is None:
        return Table(name, frame, checksums)
    what = f"dataset.test_file={tested}"
    test, test_checksum = _verified(settings, "test_file", "test_checksum")
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
        frame, _ = _verified(settings, "file", "checksum", texts)
        test, _ = _verified(settings, "test_file", "test_checksum", texts)
    rows = pd.concat([frame, test[frame.columns]], ignore_index=True)
    checksums["test_checksum"] = test_checksum
    return Table(name, rows, checksums, TestRows(what, len(test)))


def _verified(
    settings: Mapping[str, Any], key: str, expected: str, texts: tuple[str, ...] = ()
) -> tuple[pd.DataFrame, str]:
    path = source_path(f"dataset.{key}", settings[key], "file")
    found = verified(f"dataset.{key}", path, settings.get(expected), f"dataset.{expected}")
    return read_file(settings, key, path, texts), found


def read_file(
    settings: Mapping[str, Any], key: str, path: Path, texts: tuple[str, ...] = ()
) -> pd.DataFrame:
    """The rows of a file, whose columns `texts` are texts; UserError for a file that is no table.

    key: the setting that names it.
    """
    separator, quotes = settings.get("separator"), settings.get("quotes", DOUBLE)
    if separator is None:
        separator = TAB if path.suffix.lower() == ".tsv" else ","
    character = TAB if separator == SPELLED_TAB else separator
    if not isinstance(character, str) or len(character) != 1:
        raise UserError(
            f"dataset.separator must be one character, such as ',', or '{SPELLED_TAB}' for a tab, "
            f"got {quoted(separator)}."
        )
    one_of("dataset.quotes", quotes, (DOUBLE, NONE))
    may_be_large = boolean("dataset.large", settings.get("large", False))
    file = _File(f"dataset.{key}={path}", path, character, quotes)
    status = path.stat()
    frame, joined = _read(file, may_be_large, texts, status.st_size, status.st_mtime_ns)
    if len(frame.columns) == 1:
        other = _other_separator(file) or ";"
        raise UserError(
            f"{path.name} has a single column, {quoted(frame.columns[0])}: set the separator of "
            f"its values, for instance {_setting_of(other)}."
        )
    if joined and settings.get("rows") is None:
        raise swallowed(file.what, len(frame), joined)
    return frame


class _File(NamedTuple):
    """A CSV file. what: the setting that names it; separator, quotes: see `CsvFile`."""

    what: str
    path: Path
    separator: str
    quotes: str


def _other_separator(file: _File) -> str:
    """A separator that both of the first lines have, and is not the given one; "" without one."""
    with unpacked(file.path) as stream:
        head = [stream.readline(LONGEST_HEAD).decode(errors="replace") for _ in range(2)]
    others = (other for other in SEPARATORS if other != file.separator)
    return next((other for other in others if all(other in line for line in head if line)), "")


def _setting_of(separator: str) -> str:
    """The setting as it is typed in a shell."""
    return f"'dataset.separator=\"{SPELLED_TAB if separator == TAB else separator}\"'"


@functools.lru_cache(maxsize=2)
def _read(
    file: _File, may_be_large: bool, as_text: tuple[str, ...], *_: int
) -> tuple[pd.DataFrame, Lines | None]:
    """The rows, and lines that seem to be several; cached until the file changes: its settings and
    its data are read separately."""
    read = functools.partial(
        pd.read_csv,
        file.path,
        sep=file.separator,
        skipinitialspace=True,
        index_col=False,
        quoting=csv.QUOTE_NONE if file.quotes == NONE else csv.QUOTE_MINIMAL,
    )
    with warnings.catch_warnings(action="error", category=ParserWarning):
        try:
            ending = file.path.suffix.lower()
            if ending in (*OTHER_FORMATS, *SPREADSHEETS):
                raise ValueError(ending)  # a line of it may look like names of columns
            if ending == PARQUET:
                if not may_be_large:
                    size_by_footers([file.path]).check(file.what)
                return pd.read_parquet(file.path), None
            size = size_of(file.path, file.separator, whole=may_be_large)
            if not may_be_large:
                size.check(file.what)
            frame, names = read(low_memory=False), read(header=None, nrows=1, dtype=str).iloc[0]
            texts = [
                number
                for number, name in enumerate(frame)
                if name in as_text or _has_texts_read_as_missing(frame[name])
            ]
            if texts:
                frame[frame.columns[texts]] = read(
                    usecols=texts, dtype=str, keep_default_na=False, na_values=[""]
                )
        except (EmptyDataError, ParserError, ParserWarning, ValueError, *UNREADABLE) as error:
            raise UserError(
                f"{file.what} is not a table of values separated by {file.separator!r}: "
                f"{_why(error, file)}."
            ) from error
    if (repeated := names[names.duplicated() & names.notna()]).any():
        raise UserError(
            f"{file.what} has several columns named {quoted(repeated.iloc[0])}: "
            "rename or remove all but one."
        )
    may_join = file.quotes == DOUBLE and size.lines > len(frame) + 1
    return frame, joined_lines(file.path, file.separator, frame) if may_join else None


def _why(error: Exception, file: _File) -> str:
    """Why a file cannot be read, and the way out where it is known."""
    ending = file.path.suffix.lower()
    if ending in OTHER_FORMATS:
        return f"read it by dataset=hub dataset.path={file.path.name}"
    if ending in SPREADSHEETS:
        return "it is a spreadsheet; save it as CSV"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text; save it as UTF-8"
    why = first_line(error, type(error).__name__).rstrip(".")
    if isinstance(error, UNREADABLE):
        return why
    if isinstance(error, ParserWarning):
        why = "a row has more values than the first line, which has to have their names"
    if other := _other_separator(file):
        return f"{why}; if {other!r} separates them, set {_setting_of(other)}"
    return f"{why}; {NO_QUOTES}" if file.quotes == DOUBLE and _has_quotes(file.path) else why


def _has_quotes(path: Path) -> bool:
    with unpacked(path) as stream:
        return any(QUOTE.encode() in line for line in stream)


def _has_texts_read_as_missing(column: pd.Series) -> bool:
    """Whether a column of text may have the text NA or None, which pandas takes for no value."""
    return is_string_dtype(column) and bool(column.isna().any())
