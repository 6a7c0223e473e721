"""The user's own CSV files: their rows, and those of a test file of the publisher's own."""

import functools
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pandas.api.types import is_string_dtype
from pandas.errors import EmptyDataError, ParserError, ParserWarning

from dpbench.data.custom.checksums import source_path, verified
from dpbench.system.errors import UserError, first_line
from dpbench.system.validate import quoted

TAB, SPELLED_TAB = "\t", r"\t"
SEPARATORS = (TAB, ";", "|", ",")
"""The usual separators, the least common in names first."""

LONGEST_HEAD = 65_536
"""The most characters of a first line that are searched for a separator."""

OTHER_FORMATS = (".arrow", ".json", ".jsonl", ".ndjson", ".parquet")
"""The endings of tables that dataset=hub reads."""


class CsvRows(NamedTuple):
    """The rows of a CSV file and then those of its test file, with their checksums.

    test_rows, test_checksum: None without a test file.
    """

    frame: pd.DataFrame
    checksum: str
    test_rows: int | None
    test_checksum: str | None


def csv_rows(settings: Mapping[str, Any]) -> CsvRows:
    """Read the files that settings name; UserError for files that are not tables of one kind, and
    for others than the expected ones."""
    frame, checksum = _verified_csv(settings, "file", "checksum")
    if settings.get("test_file") is None:
        return CsvRows(frame, checksum, None, None)
    test, test_checksum = _verified_csv(settings, "test_file", "test_checksum")
    if test_checksum == checksum:
        raise UserError(
            f"dataset.test_file={settings['test_file']} has the rows that are trained on: give a "
            "file of others, or none, to hold out dataset.test_share of the rows."
        )
    if different := [*frame.columns.symmetric_difference(test.columns, sort=False)]:
        raise UserError(
            f"dataset.test_file={settings['test_file']} and dataset.file={settings['file']} must "
            f"have the same columns, but only one of them has {quoted(different[0])}."
        )
    if not len(test):
        raise UserError(f"dataset.test_file={settings['test_file']} has no rows.")
    texts = tuple(n for n in frame if is_string_dtype(frame[n]) != is_string_dtype(test[n]))
    if texts:  # 01 is a number in one file, and a text where another row has 1A
        frame, _ = _verified_csv(settings, "file", "checksum", texts)
        test, _ = _verified_csv(settings, "test_file", "test_checksum", texts)
    rows = pd.concat([frame, test[frame.columns]], ignore_index=True)
    return CsvRows(rows, checksum, len(test), test_checksum)


def _verified_csv(
    settings: Mapping[str, Any], key: str, expected: str, texts: tuple[str, ...] = ()
) -> tuple[pd.DataFrame, str]:
    path = source_path(f"dataset.{key}", settings[key], "file")
    found = verified(f"dataset.{key}", path, settings.get(expected), f"dataset.{expected}")
    return read_csv(path, settings["separator"], texts), found


def read_csv(path: Path, separator: object, texts: tuple[str, ...] = ()) -> pd.DataFrame:
    """The rows of a CSV file, whose columns `texts` are texts; UserError for a file that is not
    one."""
    character = TAB if separator == SPELLED_TAB else separator
    if not isinstance(character, str) or len(character) != 1:
        raise UserError(
            f"dataset.separator must be one character, such as ',', or '{SPELLED_TAB}' for a tab, "
            f"got {quoted(separator)}."
        )
    status = path.stat()
    frame = _read(path, character, texts, status.st_size, status.st_mtime_ns)
    if len(frame.columns) == 1:
        other = _other_separator(path, character) or ";"
        raise UserError(
            f"{path.name} has a single column, {quoted(frame.columns[0])}: set the separator of "
            f"its values, for instance {_setting_of(other)}."
        )
    return frame


def _other_separator(path: Path, separator: str) -> str:
    """A separator that the first line has, and is not the given one; "" if there is none."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        head = lines.readline(LONGEST_HEAD)
    return next((other for other in SEPARATORS if other != separator and other in head), "")


def _setting_of(separator: str) -> str:
    """The setting as it is typed in a shell."""
    return f"'dataset.separator=\"{SPELLED_TAB if separator == TAB else separator}\"'"


@functools.lru_cache(maxsize=2)
def _read(path: Path, separator: str, as_text: tuple[str, ...], *_: int) -> pd.DataFrame:
    """The rows, cached until the file changes: its settings and its data are read separately."""
    with warnings.catch_warnings(action="error", category=ParserWarning):
        read = functools.partial(
            pd.read_csv, path, sep=separator, skipinitialspace=True, index_col=False
        )
        try:
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
        except (EmptyDataError, ParserError, ParserWarning, ValueError, OSError) as error:
            raise UserError(
                f"dataset.file={path} is not a table of values separated by {separator!r}: "
                f"{_why(error, path, separator)}."
            ) from error
    if (repeated := names[names.duplicated() & names.notna()]).any():
        raise UserError(
            f"dataset.file={path} has several columns named {quoted(repeated.iloc[0])}: "
            "rename or remove all but one."
        )
    return frame


def _why(error: Exception, path: Path, separator: str) -> str:
    """Why a file cannot be read, and the way out where it is known."""
    if path.suffix.lower() in OTHER_FORMATS:
        return f"read it by dataset=hub dataset.path={path.name}"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text; save it as UTF-8"
    why = first_line(error, type(error).__name__).rstrip(".")
    if isinstance(error, ParserWarning):
        why = "a row has more values than the first line has names"
    if other := _other_separator(path, separator):
        why = f"{why}; if {other!r} separates them, set {_setting_of(other)}"
    return why


def _has_texts_read_as_missing(column: pd.Series) -> bool:
    """Whether a column of text may have the text NA or None, which pandas takes for no value."""
    return is_string_dtype(column) and bool(column.isna().any())
