"""What is odd about the user's own tables, but may be meant: warned of, not refused."""

import json
import shlex
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype, is_string_dtype

from dpbench.learning.data.custom.column_types import FEW
from dpbench.learning.data.custom.columns import Columns
from dpbench.learning.data.custom.identifiers import repeating
from dpbench.learning.data.custom.source import TestRows
from dpbench.system.errors import MAX_LISTED, counted, warn
from dpbench.system.grouping import grouped
from dpbench.system.validate import naming, quoted

RARE, RARE_SHARE, MOST_NAMED = 10, 20, 5
"""A class is named as rare if it has fewer than 10 rows, and at most a twentieth; of such, five."""

COPIED = 1 - 1e-9
"""The correlation with the target from which on a number is the target in another unit."""

AROUND = " .'\"`´‘’“”„«»"
"""What may stand around a category in one of its spellings."""

LIKE_MISSING = ("NA", "N/A", "n/a", "NaN", "nan", "None", "null", "NULL", "?", "-", ".")
"""Words and signs that may stand for a missing value, and are values in a column of text."""

NOBODY = {*map(str.casefold, LIKE_MISSING), "unknown", "missing", "anonymous"}
"""What an owner of rows is called who is not known, in lower case."""

SHARE = 0.01
"""The share of copies from which on they are worth a warning."""

BY_CHANCE = 10
"""So many times as many equal pairs of rows as if columns were independent are no coincidence."""

MARKS_BELOW, MARKS_ABOVE = (-9, -88, -99, -888, -999, -9999), (99, 999, 9999, 99999, 999999)
"""Numbers that stand for no value in many tables."""

SEVERAL = 5
"""So many other values tell a mark above them from the last of a few numbers."""


def warn_of_oddities(frame: pd.DataFrame, columns: Columns, name: str) -> None:
    """Warn of a column that only counts the rows, of categories that may be no value or be one, and
    of classes too rare to be measured."""
    for column in columns.numbers(frame):
        values = frame[column].to_numpy("float64")
        if np.array_equal(np.sort(values) - values.min(), np.arange(len(values))):
            warn(
                f"column {column} of {name} numbers the rows, and is taken as a feature: leave it "
                f"out with {naming('dataset.drop', [column])}."
            )
        if mark := _mark(values):
            warn(
                f"column {column} of {name} has {mark:g} in {(values == mark).sum():,} rows, apart "
                f"from all other values: set {missing_mark(mark)} if it stands for no value."
            )
    for column in frame:
        if not is_string_dtype(frame[column]):
            continue
        values = frame[column].value_counts()
        counts = values[values.index.isin(LIKE_MISSING)]
        if len(counts) and column not in {*columns.categorical, *columns.listed}:
            warn(
                f"column {column} of {name} has {quoted(counts.index[0])} in "
                f"{counted(counts.iloc[0], 'row')}, which is a category like any other: set "
                f"{missing_mark(counts.index[0])} if it stands for no value, or "
                f"{naming('dataset.categorical', [column])} if it is one."
            )
        if column not in columns.group:
            warn_of_spellings(f"column {column} of {name}", values.index)
    if columns.task == "regression":
        return
    sizes = frame[columns.target].value_counts()
    few = min(RARE - 1, len(frame) / RARE_SHARE)
    if rare := [f"{label} ({size})" for label, size in sizes.items() if size <= few]:
        amounts = len(sizes) > FEW and not is_string_dtype(frame[columns.target])
        way = "; if they are amounts, set dataset.task=regression" if amounts else ""
        if columns.target not in columns.group:
            way = f"; {naming('dataset.group', columns.target)} reports metrics for each class{way}"
        warn(f"classes of {name} with hardly any rows: {', '.join(rare[:MOST_NAMED])}{way}.")


def warn_of_copies(columns: Sequence[pd.Series], test: TestRows, name: str, people: bool) -> None:
    """Warn of test rows that are in training, and of training rows that are there twice, unless
    that is likely by chance or rows are counted by person.

    columns: the features and the target.
    """
    known, copies = copies_in(columns, test)
    if known:
        warn(
            f"{known:,} of the {test.number:,} rows of {test.name} are rows that are trained on, "
            "too: test metrics are better than they are for new rows, so remove them from one."
        )
    many = copies > SHARE * (len(columns[0]) - test.number)
    if many and not people and copies > BY_CHANCE * expected_pairs(columns):
        are = "is a copy of another" if copies == 1 else "are copies of others"
        drawn = "" if test.number else ", and one of two may be trained on and the other tested"
        warn(
            f"{counted(copies, 'row')} of {name} {are}: epsilon is per row, and whoever is in k "
            f"rows has less privacy{drawn}: remove them, or set users=column if a column says "
            "whose they are."
        )


def copies_in(columns: Sequence[pd.Series], test: TestRows) -> tuple[int, int]:
    """The number of test rows that are in training, and of training rows that are equal to earlier
    ones."""
    if not columns:
        return 0, 0
    numbers = identical(columns)
    train, tested = np.split(numbers, [len(numbers) - test.number])
    return int(np.isin(tested, train).sum()), len(train) - len(np.unique(train))


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


def warn_of_people(frame: pd.DataFrame, name: str) -> None:
    """Warn of a column that seems to say whose a row is, where epsilon is per row."""
    for column in repeating(frame):
        warn(
            f"column {column} of {name} has {frame[column].nunique():,} values in {len(frame):,} "
            "rows, like an identifier of people with several rows, and epsilon is per row: set "
            f"users=column {naming('users.column', column)} to protect all rows of each."
        )


def warn_of_target_leaks(frame: pd.DataFrame, columns: Columns, name: str) -> None:
    """Warn of features from each of which the target of every row is known."""
    for column in columns.features(frame):
        if _tells(frame[column], frame[columns.target], columns.task):
            warn(
                f"column {column} of {name} tells the target {columns.target} of every row, and is "
                f"taken as a feature: leave it out with {naming('dataset.drop', [column])} if it "
                "is another form of the target."
            )


def warn_of_unseen(
    column: pd.Series, train: np.ndarray, test: np.ndarray, what: str = "class"
) -> None:
    """Warn of values that test rows have, and no training row. train, test: places of rows. what:
    the values are."""
    seen, tested = (column.iloc[part].dropna().unique().tolist() for part in (train, test))
    if unseen := sorted({*map(str, tested)} - {*map(str, seen)}):
        warn(
            f"no training row has the {what} {' or '.join(unseen[:MOST_NAMED])} of column "
            f"{column.name}, which test rows have: it cannot be learnt."
        )


def warn_of_spellings(name: str, categories: Iterable[str], what: str = "categories") -> None:
    """Warn of all categories that are alike but for their spelling. name: what has them."""
    alike = grouped((spelling(text), text) for text in sorted(categories))
    if several := [" and ".join(map(told, texts)) for texts in alike.values() if len(texts) > 1]:
        more = f", and {len(several) - MAX_LISTED} more" if len(several) > MAX_LISTED else ""
        warn(
            f"{name} has {'; '.join(several[:MAX_LISTED])}{more}, which are different {what}: "
            "spell them alike if they are one."
        )


def warn_of_nobody(owners: pd.Series) -> None:
    """Warn of rows whose owner seems to be unknown, which would be those of one user; plain."""
    mark: float | str | None
    if is_numeric_dtype(owners):
        mark = _mark(owners.to_numpy("float64"), (-1, *MARKS_BELOW))
    else:
        mark = next((name for name in owners.unique() if name.strip().casefold() in NOBODY), None)
    if mark is not None:
        warn(
            f"users.column={owners.name} has {mark:{'' if isinstance(mark, str) else 'g'}} in "
            f"{(owners == mark).sum():,} rows, which are protected as those of one user: set "
            f"{missing_mark(mark)} if it stands for no value, and complete or remove them."
        )


def _mark(values: np.ndarray, below: Sequence[float] = MARKS_BELOW) -> float | None:
    """A number that seems to stand for no value: repeated, and the only one below 0, or farther
    above all others than these are from each other."""
    values = values[~np.isnan(values)]
    low, high = values.min(initial=0), values.max(initial=0)
    if low in below and (values == low).sum() > 1 and (values[values > low] >= 0).all():
        return float(low)
    others = values[values < high]
    if high in MARKS_ABOVE and (values == high).sum() > 1 and len(np.unique(others)) >= SEVERAL:
        return float(high) if high - others.max() > np.ptp(others) else None
    return None


def missing_mark(value: object) -> str:
    """The setting by which a value stands for none, as it is typed in a shell."""
    if isinstance(value, float):
        return f"dataset.missing_values=[{value:g}]"
    return shlex.quote(f"dataset.missing_values={json.dumps([str(value)], ensure_ascii=False)}")


def spelling(text: object) -> str:
    """What is alike in several spellings of one category: the text without case, quotes and full
    stops around it, repeated spaces, and Unicode's forms of one letter."""
    plain = unicodedata.normalize("NFKC", str(text).casefold())
    return " ".join(plain.split()).strip(AROUND) or plain


def told(category: object) -> str:
    """A category as a message shows it, with the codes of characters that only look like others."""
    composed = not isinstance(category, str) or unicodedata.is_normalized("NFC", category)
    return quoted(category) if composed else ascii(category)


def _tells(column: pd.Series, target: pd.Series, task: str) -> bool:
    """Whether a column gives the target of every row away: as a number that is the target in
    another unit, or by values of ten rows or more on average, each of which has one class."""
    if task == "regression":
        return is_numeric_dtype(column) and abs(column.astype("float64").corr(target)) > COPIED
    values, distinct_values = pd.factorize(column, use_na_sentinel=False)
    if len(distinct_values) > len(column) / RARE:
        return False
    classes, distinct_classes = pd.factorize(target)
    pairs = np.unique(values * len(distinct_classes) + classes)
    return len(pairs) == len(distinct_values)
