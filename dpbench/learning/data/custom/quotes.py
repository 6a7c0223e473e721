"""Quotes that join lines of a CSV file: to a value with line breaks, or by mistake."""

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from dpbench.learning.data.custom.column_types import FEW
from dpbench.learning.data.custom.oddities import LIKE_MISSING
from dpbench.learning.data.custom.sizes import unpacked
from dpbench.system.errors import UserError, counted

LineSpan = tuple[int, int]
"""The numbers of a first and a last line, from 1."""

QUOTE = '"'

NOTHING = ("", *LIKE_MISSING)
"""What stands in a column of numbers where a row has none."""


def swallowed(what: str, rows: int, lines: LineSpan) -> UserError:
    """The refusal of a file with a row of lines that seem to be several.

    what: the setting that names it. rows: their number, as they are read.
    """
    first, last = lines
    return UserError(
        f"{what} is read as {counted(rows, 'row')}, one of them from lines {first:,} to {last:,}, "
        f"which a {QUOTE} joins although they seem to be several: set dataset.quotes=none if "
        "quotes are characters like any other; if not, close the quotes, or set dataset.rows to "
        "confirm that it is one row."
    )


def joined_lines(
    path: Path, separator: str, frame: pd.DataFrame, encoding: str = "utf-8-sig"
) -> LineSpan | None:
    """The first and last line, from 1, of a row that should be several; None without one.

    That is a row whose quotes do not end where a value does, or each of whose lines would be a row
    like the others if it had none.
    """
    csv.field_size_limit(sys.maxsize)  # such a value may be most of the file
    accept, lines = [_accepts(frame[name]) for name in frame], list[str]()
    with unpacked(path) as stream:
        text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="")
        rows = csv.reader(
            _kept(text, lines), delimiter=separator, skipinitialspace=True, strict=True
        )
        for is_regular in _regular(rows):
            if len(lines) > 1 and not (is_regular and _is_value(lines, separator, accept)):
                return rows.line_num - len(lines) + 1, rows.line_num
            lines.clear()
    return None


def _kept(lines: Iterable[str], kept: list[str]) -> Iterator[str]:
    for line in lines:
        kept.append(line)
        yield line


def _regular(rows: Iterator[list[str]]) -> Iterator[bool]:
    """Of each row, whether its quotes end where its values do."""
    while True:
        try:
            next(rows)
            yield True
        except StopIteration:
            return
        except csv.Error:
            yield False


def _is_value(lines: list[str], separator: str, accept: list[Callable[[str], bool]]) -> bool:
    """Whether not all lines would be rows by themselves."""
    for line in lines:
        values = [value.strip() for value in line.split(separator)]
        if len(values) != len(accept) or not all(f(v) for f, v in zip(accept, values, strict=True)):
            return True
    return False


def _accepts(column: pd.Series) -> Callable[[str], bool]:
    if is_numeric_dtype(column) and not is_bool_dtype(column):
        return lambda text: text in NOTHING or pd.notna(pd.to_numeric(text, errors="coerce"))
    known = {*map(str, column.unique())}
    return lambda text: len(known) > FEW or text in known or QUOTE in text
