"""The types of columns: wherever a table is from, those that a CSV file of it would have."""

import re
from collections.abc import Iterable
from decimal import Decimal

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

FEW = 20
"""The number of different values up to which a column has categories, however few its rows."""

AMOUNTS = {
    "dates": re.compile(r"(\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[./]\d\d?[./]\d{2,4})(?!\d)"),
    "times of day": re.compile(r"\d\d?:\d\d"),
    "durations": re.compile(r"-?\d+ days?\b"),
    "numbers as texts": re.compile(r"[-+−]?[($€£¥]?[-+−]? ?\d[\d.,' ]* ?[%€$£¥)]*$"),
}
"""How texts begin of which each would be a category, although they are a kind of number."""


TRUTH = (bool, np.bool_)
NUMBERS = (int, float, np.integer, np.floating, Decimal)


def plain(column: pd.Series) -> pd.Series:
    """The column as numbers, as truth values or, if it has anything else, as texts.

    Decimals are numbers; dates, durations, bytes, mappings and lists are texts.
    """
    dtype = column.dtype
    of_numpy = isinstance(dtype, np.dtype) and dtype.kind in "biuf"
    if of_numpy or isinstance(dtype, pd.StringDtype):
        return column
    values = column.astype(object).where(column.notna(), np.nan)
    types = {*map(type, values[values.notna()])}
    if _all_in(types, TRUTH):
        return values.infer_objects()
    if _all_in(types, NUMBERS) and types.isdisjoint(TRUTH):
        numbers = pd.to_numeric(values.map(str, na_action="ignore"))
        if is_numeric_dtype(numbers):
            return numbers
    return values.map(_text, na_action="ignore").astype("str")


def amounts_in(column: pd.Series) -> str | None:
    """The name of a kind of number that all texts of a column begin with, if there are many."""
    if column.nunique() <= FEW:
        return None
    found = (name for name, form in AMOUNTS.items() if all(map(form.match, column.dropna())))
    return next(found, None)


def _text(value: object) -> str:
    return str(value.tolist() if isinstance(value, np.ndarray) else value)


def _all_in(types: Iterable[type], known: tuple[type, ...]) -> bool:
    return all(issubclass(type_, known) for type_ in types)
