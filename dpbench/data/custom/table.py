"""The user's own tables: the role of each column, and its encoding."""

import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_float_dtype, is_numeric_dtype, is_string_dtype

from dpbench.data.custom.column_types import plain, structure
from dpbench.data.groups import FEWEST, intersections
from dpbench.system.errors import UserError, nearest
from dpbench.system.validate import LARGEST, is_integer, one_of, quoted, quoting_hint, typed

MAX_CATEGORIES = 1_000
"""The most categories of a column: a column with more is one of names or free text."""

FEW = 20
"""The number of different texts up to which a column has categories, however few its rows."""

AMOUNTS = {
    "dates": re.compile(r"(\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[./]\d\d?[./]\d{2,4})(?!\d)"),
    "times of day": re.compile(r"\d\d?:\d\d"),
    "durations": re.compile(r"-?\d+ days?\b"),
    "numbers as texts": re.compile(r"[-+]?[($€£¥]?[-+]?\d[\d.,' ]*[%€$£¥)]*$"),
}
"""How texts begin of which each would be a category, although they are a kind of number."""

RARE, RARE_SHARE, MOST_NAMED = 10, 20, 5
"""A class is named as rare if it has fewer than 10 rows, and at most a twentieth; of such, five."""

COPIED = 1 - 1e-9
"""The correlation with the target from which on a number is the target in another unit."""

LIKE_MISSING = ("NA", "N/A", "n/a", "NaN", "nan", "None", "null", "NULL", "?", "-", ".")
"""Words and signs that may stand for a missing value, and are values in a column of text."""

TRAIN, NONE = "train", "none"
REGRESSION = "regression"
TASKS = ("classification", REGRESSION)
REFUSE, IMPUTE, INDICATOR = "refuse", "impute", "indicator"


@dataclass(frozen=True)
class Columns:
    """The columns of a table by their role.

    target: the column to predict. group: the columns whose values, or intersections of values, are
    the groups that metrics are reported for; features too, unless they are in drop. categorical:
    columns of numbers that are categories; columns of text always are. drop: columns to leave out.
    missing: what a feature without a value is: refused; imputed, that is the mean of a number and
    none of the categories; or imputed beside a feature that says so, an indicator.
    """

    target: str
    group: tuple[str, ...]
    categorical: tuple[str, ...]
    drop: tuple[str, ...]
    task: str
    missing: str = REFUSE

    def plain(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The columns in use, with numbers, truth values and texts only, where they can be."""
        used = [*dict.fromkeys((*self.features(frame), *self.needed))]
        return pd.DataFrame({name: plain(frame[name], name in self.categorical) for name in used})

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that cannot be left out."""
        return self.target, *self.group

    def features(self, frame: pd.DataFrame) -> list[str]:
        """The columns that are features."""
        return [name for name in frame if name not in (self.target, *self.drop)]

    def incomplete(self, frame: pd.DataFrame) -> list[str]:
        """The features that may have no value; with indicators, those that do have gaps."""
        if self.missing == REFUSE:
            return []
        features = [name for name in self.features(frame) if name not in self.group]
        return [n for n in features if self.missing == IMPUTE or frame[n].isna().any()]

    def numbers(self, frame: pd.DataFrame) -> list[str]:
        """The features that are numbers rather than categories."""
        return [name for name in self.features(frame) if not self.is_categorical(frame[name])]

    def scalable(self, frame: pd.DataFrame) -> list[str]:
        """The columns that may have a mean and a deviation: these, and the target of regression."""
        return [*self.numbers(frame), *([self.target] if self.task == REGRESSION else [])]

    def is_categorical(self, column: pd.Series) -> bool:
        """Whether a column is encoded as one feature for each of its values."""
        numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
        return column.name in self.categorical or not numeric


class TestRows(NamedTuple):
    """The rows of a publisher's test file or part, which are the last of a table."""

    name: str
    number: int

    def row(self, place: int, rows: int) -> str:
        """The row at a place from 0 of a table with so many rows, as its own file counts it."""
        within = place - (rows - self.number)
        return f"row {place + 1}" if within < 0 else f"row {within + 1} of {self.name}"


def columns_of(settings: Mapping[str, Any], frame: pd.DataFrame) -> Columns:
    """The columns that settings name; UserError for names that the table does not have."""
    known = list(frame)
    one_of("dataset.task", settings["task"], TASKS)
    missing = settings.get("missing", REFUSE)
    one_of("dataset.missing", missing, (REFUSE, IMPUTE, INDICATOR))
    if settings["target"] is None:
        raise UserError(f"dataset.target must name the column to predict: {nearest('', known)}")
    target, group = named("target", settings["target"], known), settings["group"]
    groups = group if isinstance(group, list | tuple) else [] if group is None else [group]
    lists = {"group": tuple(named("group", name, known) for name in groups)}
    if len({*lists["group"]}) < len(groups):
        raise UserError(f"dataset.group=[{','.join(lists['group'])}] names a column twice.")
    for key in ("categorical", "drop"):
        typed(f"dataset.{key}", settings[key], list[str | float])
        lists[key] = tuple(named(key, name, known) for name in settings[key])
    if target in lists["drop"]:
        raise UserError(f"dataset.target={target} cannot be dropped.")
    if settings["task"] == REGRESSION and target in lists["group"]:
        raise UserError(f"dataset.target={target} cannot be the group, as it is a number.")
    columns = Columns(target, **lists, task=settings["task"], missing=missing)
    if isinstance(settings["standardise"], Mapping):
        for name in settings["standardise"]:
            one_of("dataset.standardise", name, columns.scalable(columns.plain(frame)))
    return columns


def named(key: str, value: object, known: Collection[str]) -> str:
    """The column that a setting names; a number stands for the column that is named so."""
    what = f"dataset.{key}"
    if not isinstance(value, str) and not is_integer(value) and str(value) not in known:
        raise UserError(
            f"{what} must name a column, got {quoted(value)}{quoting_hint(what, value)}; "
            f"{nearest(str(value), known)}"
        )
    return one_of(what, str(value), known)


def describe(frame: pd.DataFrame, columns: Columns, name: str, test: TestRows) -> dict[str, Any]:
    """What has to be public: the numbers of rows, features and classes, and the names of groups."""
    frame = columns.plain(frame)
    _check_values(frame, columns, name, test)
    regression = columns.task == REGRESSION
    if regression and columns.is_categorical(frame[columns.target]):
        raise UserError(f"dataset.target={columns.target} is not a number in {name}.")
    if not regression and _has_fractions(frame[columns.target]):
        raise UserError(
            f"dataset.target={columns.target} has fractional numbers in {name}, not classes: set "
            "dataset.task=regression."
        )
    for group in columns.group:
        if _has_fractions(frame[group]):
            raise UserError(
                f"dataset.group={group} has fractional numbers in {name}, not groups: name a "
                "column of categories, or add a column of ranges."
            )
    features = [
        len(distinct(frame[column], name)) if columns.is_categorical(frame[column]) else 1
        for column in columns.features(frame)
    ]
    if columns.missing == INDICATOR:
        features.append(len(columns.incomplete(frame)))
    groups, _ = groups_of(frame, columns, name)
    classes = 1 if regression else len(distinct(frame[columns.target], name))
    if not features or classes < 2 - regression:
        raise UserError(f"{name} has no features, or only one class in column {columns.target}.")
    if regression and frame[columns.target].nunique() < 2:
        raise UserError(
            f"dataset.target={columns.target} is the same number in all rows of {name}."
        )
    _warn_of_oddities(frame, columns, name)
    described = {"rows": len(frame), "features": sum(features), "classes": classes}
    return described | {"groups": groups}


def groups_of(frame: pd.DataFrame, columns: Columns, name: str) -> tuple[list[str], np.ndarray]:
    """The names of the groups, and the number of each row's group [n]; UserError for several
    columns without two intersections that are large enough."""
    if not columns.group:
        return ["all"], np.zeros(len(frame), "int64")
    values = [distinct(frame[group], name) for group in columns.group]
    groups, numbers = intersections(values, [codes(frame[group]) for group in columns.group])
    if len(columns.group) > 1 and len(groups) < 2:
        raise UserError(
            f"dataset.group=[{','.join(columns.group)}] has no two intersections of {FEWEST} rows "
            f"or more in {name}: name fewer columns, or one of ranges."
        )
    return groups, numbers


def _check_values(frame: pd.DataFrame, columns: Columns, name: str, test: TestRows) -> None:
    """UserError for a table without rows, and for values that are missing or infinite."""
    if len(frame) < 2:
        raise UserError(f"{name} has {len(frame)} rows, but a run needs training and test rows.")
    if nameless := [c for c in columns.features(frame) if str(c).startswith("Unnamed: ")]:
        raise UserError(
            f"{name} has a column without a name, such as an index that was written with it: name "
            f"it, or leave it out with \"dataset.drop=['{nameless[0]}']\"."
        )
    unusable, incomplete = {}, columns.incomplete(frame)
    for column in frame:
        values = frame[column]
        if column not in columns.categorical:
            _check_structure(values, columns, name)
        if column not in (*columns.needed, *columns.categorical) and is_string_dtype(values):
            _check_categories(values, name, test)
        bad = values.isna() & (column not in incomplete)
        if not columns.is_categorical(values):
            bad |= np.abs(values.to_numpy("float64")) > LARGEST
        if bad.any():
            unusable[column] = bad
    if unusable:
        raise _unusable(unusable, frame, columns, name, test)


def _unusable(
    cells: Mapping[str, pd.Series],
    frame: pd.DataFrame,
    columns: Columns,
    name: str,
    test: TestRows,
) -> UserError:
    """The refusal of cells, true in each column, that are empty or not finite numbers."""
    column, first = next(iter(cells.items()))
    counts, others = {column: int(bad.sum()) for column, bad in cells.items()}, ""
    if (total := sum(counts.values())) > 1:
        by_column = ", ".join(f"{column} {count:,}" for column, count in counts.items())
        others = f", one of {total:,} such cells ({by_column})"
    remove = "remove it"
    if droppable := [column for column in cells if column not in columns.needed]:
        remove += f", or leave columns out with dataset.drop=[{','.join(droppable)}]"
        if columns.missing == REFUSE and frame[droppable].isna().any(axis=None):
            remove += ", or set dataset.missing=impute"
    row = test.row(int(np.flatnonzero(first)[0]), len(frame))
    return UserError(
        f"{name} has no usable value in column {column} of {row}{others}: complete the row, or "
        f"{remove}; the file may also be truncated."
    )


def _warn_of_oddities(frame: pd.DataFrame, columns: Columns, name: str) -> None:
    """Warn of a column that only counts the rows, of categories that may be no value or be one, and
    of classes too rare to be measured."""
    for column in columns.numbers(frame):
        values = frame[column].to_numpy("float64")
        if np.array_equal(np.sort(values) - values.min(), np.arange(len(values))):
            warnings.warn(
                f"column {column} of {name} numbers the rows, and is taken as a feature: leave it "
                f"out with dataset.drop=[{column}].",
                stacklevel=2,
            )
    for column in frame.columns.difference(columns.drop, sort=False):
        if not is_string_dtype(frame[column]):
            continue
        counts = frame[column][frame[column].isin(LIKE_MISSING)].value_counts()
        if len(counts) and column not in columns.categorical:
            warnings.warn(
                f"column {column} of {name} has {quoted(counts.index[0])} in {counts.iloc[0]} "
                "rows, which is a category like any other: remove these rows if the value is "
                f"missing, or set dataset.categorical=[{column}] if it is not.",
                stacklevel=2,
            )
        warn_of_spellings(f"column {column} of {name}", frame[column].dropna().unique())
    if columns.task == REGRESSION:
        return
    sizes = frame[columns.target].value_counts()
    few = min(RARE - 1, len(frame) / RARE_SHARE)
    if rare := [f"{label} ({size})" for label, size in sizes.items() if size <= few]:
        amounts = len(sizes) > FEW and not is_string_dtype(frame[columns.target])
        way = "; if they are amounts, set dataset.task=regression" if amounts else ""
        warnings.warn(
            f"classes of {name} with hardly any rows: {', '.join(rare[:MOST_NAMED])}; "
            f"dataset.group={columns.target} reports metrics for each class{way}.",
            stacklevel=2,
        )


def warn_of_copies(frame: pd.DataFrame, columns: Columns, name: str) -> None:
    """Warn of features from each of which the target of every row is known."""
    frame = columns.plain(frame)
    for column in columns.features(frame):
        if _tells(frame[column], frame[columns.target], columns.task):
            warnings.warn(
                f"column {column} of {name} tells the target {columns.target} of every row, and is "
                f"taken as a feature: leave it out with dataset.drop=[{column}] if it is another "
                "form of the target.",
                stacklevel=2,
            )


def warn_of_unseen(
    column: pd.Series, train: np.ndarray, test: np.ndarray, what: str = "class"
) -> None:
    """Warn of values that test rows have, and no training row. train, test: places of rows. what:
    the values are."""
    seen, tested = (column.iloc[part].dropna().unique().tolist() for part in (train, test))
    if unseen := sorted({*map(str, tested)} - {*map(str, seen)}):
        warnings.warn(
            f"no training row has the {what} {' or '.join(unseen[:MOST_NAMED])} of column "
            f"{column.name}, which test rows have: it cannot be learnt.",
            stacklevel=2,
        )


def _tells(column: pd.Series, target: pd.Series, task: str) -> bool:
    """Whether a column gives the target of every row away: as a number that is the target in
    another unit, or by values of ten rows or more on average, each of which has one class."""
    if task == REGRESSION:
        return is_numeric_dtype(column) and abs(column.astype("float64").corr(target)) > COPIED
    values, distinct_values = pd.factorize(column, use_na_sentinel=False)
    pairs = {*zip(values.tolist(), pd.factorize(target)[0].tolist(), strict=True)}
    return len(pairs) == len(distinct_values) <= len(column) / RARE


def warn_of_spellings(name: str, categories: Iterable[str], what: str = "categories") -> None:
    """Warn of the first categories that differ only in case and in spaces. name: what has them."""
    alike: dict[str, list[str]] = {}
    for text in sorted(categories):
        alike.setdefault(" ".join(text.split()).casefold(), []).append(text)
    if several := next((texts for texts in alike.values() if len(texts) > 1), None):
        warnings.warn(
            f"{name} has {' and '.join(map(quoted, several))}, which are different {what}: spell "
            "them alike if they are one.",
            stacklevel=2,
        )


def _check_structure(column: pd.Series, columns: Columns, name: str) -> None:
    """UserError for a column whose values are no single ones."""
    if what := structure(column):
        first = column.dropna().iloc[0]
        example = " ".join(quoted(getattr(first, "tolist", lambda: first)()).split())
        way = f"leave the column out with dataset.drop=[{column.name}], or"
        if column.name in columns.needed:
            way = "choose another target or group, or"
        raise UserError(
            f"column {column.name} of {name} has {what}, such as {example}, and not single values: "
            f"{way} set dataset.categorical=[{column.name}] if its values are categories."
        )


def _check_categories(column: pd.Series, name: str, test: TestRows) -> None:
    """UserError for text that looks like numbers with a word among them, or names of the rows."""
    words = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
    ways = (
        f"leave the column out with dataset.drop=[{column.name}], or set "
        f"dataset.categorical=[{column.name}] if its values are categories."
    )
    if 0 < len(words) < column.count() / 2:
        row = test.row(column.index.get_loc(words.index[0]), len(column))
        raise UserError(
            f"column {column.name} of {name} has numbers, but {quoted(words.iloc[0])} in {row}: "
            f"replace it or remove the row, {ways}"
        )
    example = next(iter(column.dropna()), None)
    if amounts := _amounts(column):
        raise UserError(
            f"column {column.name} of {name} has {amounts}, such as {quoted(example)}, each of "
            f"which would be a category: turn them into numbers, {ways}"
        )
    if (different := column.nunique()) > max(len(column) / 2, FEW):
        raise UserError(
            f"column {column.name} of {name} has {different} different texts in {len(column)} "
            f"rows, such as {quoted(example)}, like a column of names: {ways}"
        )


def _amounts(column: pd.Series) -> str | None:
    """The name of a kind of number that all texts of a column begin with, if there are many."""
    if column.nunique() <= FEW:
        return None
    found = (name for name, form in AMOUNTS.items() if all(map(form.match, column.dropna())))
    return next(found, None)


def _has_fractions(column: pd.Series) -> bool:
    return is_float_dtype(column) and bool((column % 1).any())


def distinct(column: pd.Series, name: str) -> list:
    """The distinct values of a column, sorted, without that of no value; UserError for too many."""
    values = column.dropna().unique().tolist()
    if len(values) > MAX_CATEGORIES:
        raise UserError(
            f"column {column.name} of {name} has {len(values)} different values, and a column may "
            f"have at most {MAX_CATEGORIES} categories: leave it out with dataset.drop, or, if it "
            "is a target of numbers, set dataset.task=regression."
        )
    return sorted(values, key=lambda value: (isinstance(value, str), value))


def codes(column: pd.Series) -> np.ndarray:
    """The rank of each row's value among the distinct values [n]."""
    numbers = {value: number for number, value in enumerate(distinct(column, "the table"))}
    return column.map(numbers).to_numpy("int64")
