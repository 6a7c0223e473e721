"""A first line that names the columns of a file, or is a row like the others."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from dpbench.learning.data.custom.column_types import FEW


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


def named_by(first: Sequence[str], frame: pd.DataFrame) -> str:
    """The first text of a first line that is above nothing but numbers in its column; "" for none.

    frame: with that line as its first row.
    """
    for name, (_, column) in zip(first, frame.items(), strict=True):
        if isinstance(name, str) and not is_numeric_dtype(column):
            numbers = pd.to_numeric(column, errors="coerce")
            if (
                pd.isna(numbers.iloc[0])
                and numbers.iloc[1:].notna().sum() == column[1:].count() > 0
            ):
                return name
    return ""


def _are_names(numbers: Sequence[float]) -> bool:
    """Whether several numbers have equal distances above 0."""
    steps = np.diff(numbers)
    return len(steps) > 0 and bool(steps[0] > 0 and np.allclose(steps, steps[0]))
