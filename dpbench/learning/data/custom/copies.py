"""Rows that are copies of others: a person counted twice, or a test row that is trained on."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dpbench.learning.data.custom.source import TestRows
from dpbench.system.errors import warn

SHARE = 0.01
"""The share of copies from which on they are worth a warning."""

BY_CHANCE = 10
"""So many times as many equal pairs of rows as if columns were independent are no coincidence."""


def warn_of_copies(columns: Sequence[pd.Series], test: TestRows, name: str, people: bool) -> None:
    """Warn of test rows that are in training, and of training rows that are there twice, unless
    that is likely by chance or rows are counted by person.

    columns: the features and the target.
    """
    numbers = identical(columns)
    train = numbers[: len(numbers) - test.number]
    if known := int(np.isin(numbers[len(train) :], train).sum()):
        warn(
            f"{known:,} of the {test.number:,} rows of {test.name} are rows that are trained on, "
            "too: test metrics are better than they are for new rows, so remove them from one."
        )
    copies = len(train) - len(np.unique(train))
    many = copies > SHARE * len(train)
    if many and not people and copies > BY_CHANCE * expected_pairs(columns):
        drawn = "" if test.number else ", and one of two may be trained on and the other tested"
        warn(
            f"{copies:,} rows of {name} are copies of others: epsilon is per row, and whoever is "
            f"in k rows has less privacy{drawn}: remove them, or set users=column if a column says "
            "whose they are."
        )


def identical(columns: Sequence[pd.Series]) -> np.ndarray:
    """A number for each row [n], the same for equal rows.

    A column that only numbers or names the rows does not count. Rows that differ from all others in
    some column are not looked at in the next: that is most of them after a few.
    """
    numbers = np.arange(len(columns[0]))
    left, codes = numbers, np.zeros(len(numbers), "int64")
    for column in columns:
        values, known = pd.factorize(column, use_na_sentinel=False)
        if len(known) == len(numbers) and column.dtype.kind != "f":
            continue
        codes = pd.factorize(codes * len(known) + values[left])[0]
        several = np.bincount(codes)[codes] > 1
        left, codes = left[several], codes[several]
        if not len(left):
            return numbers
    first = np.full(codes.max(initial=-1) + 1, len(numbers))
    np.minimum.at(first, codes, left)
    numbers[left] = first[codes]
    return numbers


def expected_pairs(columns: Sequence[pd.Series]) -> float:
    """The expected number of equal pairs of rows, if the columns were independent."""
    n = len(columns[0])
    pairs = n * (n - 1) / 2
    for column in columns:
        counts = column.value_counts(dropna=False).to_numpy("float64")
        if len(counts) < n or column.dtype.kind == "f":
            pairs *= ((counts / n) ** 2).sum()
    return pairs
