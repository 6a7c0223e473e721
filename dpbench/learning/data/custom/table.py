"""The user's own tables: what of them is public, and what is refused."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_float_dtype, is_string_dtype

from dpbench.learning.data.custom import oddities
from dpbench.learning.data.custom.column_types import FEW, amounts_in, plain
from dpbench.learning.data.custom.columns import MAX_CATEGORIES, Columns, columns_of
from dpbench.learning.data.custom.source import FOLDER, OwnTable, TestRows
from dpbench.learning.data.groups import FEWEST, intersections
from dpbench.system.errors import UserError, counted
from dpbench.system.validate import LARGEST, naming, quoted

SENTENCE = 3
"""The spaces in texts, on average, from which on they are no names."""

CONTROL = r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]"
"""What a text cannot have that becomes a name of a group or of a class."""


def describe(frame: pd.DataFrame, columns: Columns, name: str, test: TestRows) -> dict[str, Any]:
    """What has to be public: the numbers of rows, features and classes, and the names of groups.

    frame: plain.
    """
    check_values(frame, columns, name, test)
    regression = columns.task == "regression"
    if regression and columns.is_categorical(frame[columns.target]):
        raise UserError(f"dataset.target={columns.target} is not a number in {name}.")
    if not regression and _has_fractions(frame[columns.target]):
        raise UserError(
            f"dataset.target={columns.target} has fractional numbers in {name}, not classes: set "
            "dataset.task=regression."
        )
    groups = group_names(frame, columns, name, test)
    features = [_width(frame[column], columns, name) for column in columns.features(frame)]
    if columns.missing == "indicator":
        features.append(len(columns.incomplete(frame)))
    classes = 1 if regression else len(distinct(frame[columns.target], name))
    if not features:
        raise UserError(f"{name} has no features beside dataset.target={columns.target}.")
    if classes < 2 - regression:
        raise UserError(f"{name} has only one class in column {columns.target}: choose another.")
    if regression and frame[columns.target].nunique() < 2:
        raise UserError(
            f"dataset.target={columns.target} is the same number in all rows of {name}."
        )
    if not regression:
        check_test_labels(frame[columns.target], test)
    oddities.warn_of_oddities(frame, columns, name)
    return {"rows": len(frame), "features": sum(features), "classes": classes, "groups": groups}


def _width(column: pd.Series, columns: Columns, name: str) -> int:
    if most := columns.selected.get(str(column.name)):
        return most + 1
    return len(categories_of(column, columns, name)) if columns.is_categorical(column) else 1


def image_columns(settings: Mapping[str, Any], rows: OwnTable) -> Columns:
    """The columns of images: the target, by default their folder, and groups."""
    target = FOLDER if settings.get("target") is None else settings["target"]
    given: dict[str, Any] = {**settings, "target": target, "group": settings.get("group")}
    given |= {"categorical": [], "drop": [], "task": "classification", "standardise": "none"}
    return columns_of(given, rows.frame)


def describe_images(rows: OwnTable, columns: Columns) -> dict[str, Any]:
    """What has to be public of images, whose groups are their classes unless columns are named."""
    names, labels = labels_of(rows, columns.target)
    classes = pd.Series(np.array(names)[labels], name=columns.target)
    check_test_labels(classes, rows.test)
    oddities.warn_of_spellings(rows.name, names, "classes")
    groups = names
    if columns.group:
        frame = columns.plain(rows.frame[[*columns.needed]])
        check_values(frame, columns, rows.name, rows.test)
        groups = group_names(frame, columns, rows.name, rows.test)
    return {"rows": len(labels), "classes": len(names), "groups": groups}


def group_names(frame: pd.DataFrame, columns: Columns, name: str, test: TestRows) -> list[str]:
    """The names of the groups; UserError for some that are numbers with fractions, or spelled
    otherwise in test rows, and as `groups_of`."""
    for group in columns.group:
        if _has_fractions(frame[group]):
            raise UserError(
                f"dataset.group={group} has fractional numbers in {name}, not groups: name a "
                "column of categories, or add a column of ranges."
            )
        check_test_labels(frame[group], test, are_classes=group == columns.target)
        if is_string_dtype(frame[group]):
            oddities.warn_of_spellings(f"column {group} of {name}", frame[group].unique())
    return groups_of(frame, columns, name)[0]


def labels_of(rows: OwnTable, target: str) -> tuple[list[str], np.ndarray]:
    """The names of the classes of images, and the class of each [n]; UserError for one without."""
    values = plain(rows.frame[target])
    if values.isna().any():
        raise UserError(f"dataset.target={target} has rows without a class: filter them out.")
    if rows.classes:
        return [*rows.classes], np.array(values, "int64")
    classes, labels = np.unique(values, return_inverse=True)
    return [*map(str, classes)], labels.astype("int64")


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


def check_test_labels(column: pd.Series, test: TestRows, are_classes: bool = True) -> None:
    """UserError for classes or groups that test rows have in another spelling than training rows,
    and for classes in other numbers or words."""
    place = len(column) - test.number
    trained, tested = (all_distinct(part) for part in (column[:place], column[place:]))
    unseen = [value for value in tested if value not in trained]
    spellings = {*map(oddities.spelling, unseen)}
    others = [value for value in trained if oddities.spelling(value) in spellings]
    if not others and are_classes and _is_recoded(trained, tested):
        others = [value for value in trained if value not in tested]
    if unseen and others:
        ours, theirs = (
            ", ".join(map(oddities.told, part[: oddities.MOST_NAMED])) for part in (others, unseen)
        )
        raise UserError(
            f"{test.name} has {theirs} in column {column.name}, which no training row has, and "
            f"training rows have {ours}: write the same {'classes' if are_classes else 'groups'} "
            "in both."
        )


def _is_recoded(trained: Sequence, tested: Sequence) -> bool:
    """Whether classes of test rows are no others, but in other words or numbers: if none is a class
    of training rows, or if both have two, or numbers that differ by one amount (0/1 and 1/2)."""
    if {*trained}.isdisjoint(tested) or len(trained) == len(tested) == 2:
        return True
    if len(trained) != len(tested) or any(isinstance(value, str) for value in (*trained, *tested)):
        return False
    return len({new - old for old, new in zip(trained, tested, strict=True)}) == 1


def check_values(frame: pd.DataFrame, columns: Columns, name: str, test: TestRows) -> None:
    """UserError for a table without rows, and for values that are missing or infinite."""
    if len(frame) < 2:
        rows = counted(len(frame), "row")
        raise UserError(f"{name} has {rows}, but a run needs training and test rows.")
    if nameless := [c for c in columns.features(frame) if str(c).startswith("Unnamed: ")]:
        raise UserError(
            f"{name} has a column without a name, such as an index that was written with it: name "
            f"it, leave it out with \"dataset.drop=['{nameless[0]}']\", or, if other lines come "
            "before that of the names, set dataset.skip=1, or their number."
        )
    unusable, incomplete = {}, columns.incomplete(frame)
    for column in frame:
        values = frame[column]
        _check_readable(values, name, test)
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
    cells: Mapping[str, pd.Series], frame: pd.DataFrame, columns: Columns, name: str, test: TestRows
) -> UserError:
    column, first = next(iter(cells.items()))
    counts, others = {column: int(bad.sum()) for column, bad in cells.items()}, ""
    if (total := sum(counts.values())) > 1:
        by_column = ", ".join(f"{column} {count:,}" for column, count in counts.items())
        others = f", one of {total:,} such cells ({by_column})"
    remove = "remove it"
    if droppable := [column for column in cells if column not in columns.needed]:
        remove += f", or leave columns out with {naming('dataset.drop', droppable)}"
        if columns.missing == "refuse" and frame[droppable].isna().any(axis=None):
            remove += ", or set dataset.missing=impute"
    row = test.first(first)
    return UserError(
        f"{name} has no usable value in column {column} of {row}{others}: complete the row, or "
        f"{remove}; the file may also be truncated."
    )


def _check_readable(column: pd.Series, name: str, test: TestRows) -> None:
    """UserError for texts with control characters, such as NUL, that no name may have."""
    if is_string_dtype(column) and (controlled := column.str.contains(CONTROL, na=False)).any():
        raise UserError(
            f"column {column.name} of {name} has {quoted(column[controlled].iloc[0])} in "
            f"{test.first(controlled)}, with a control character: remove it from the data."
        )


def _check_categories(column: pd.Series, name: str, test: TestRows) -> None:
    is_word = pd.to_numeric(column, errors="coerce").isna() & column.notna()
    words = column[is_word]
    ways = (
        f"leave the column out with {naming('dataset.drop', [str(column.name)])}, or set "
        f"{naming('dataset.categorical', [str(column.name)])} if its values are categories."
    )
    if 0 < len(words) < column.count() / 2:
        raise UserError(
            f"column {column.name} of {name} has numbers, but {quoted(words.iloc[0])} in "
            f"{test.first(is_word)}: replace it or remove the row, set "
            f"{oddities.missing_mark(words.iloc[0])} if it stands for no value, {ways}"
        )
    example = next(iter(column.dropna()), None)
    if amounts := amounts_in(column):
        raise UserError(
            f"column {column.name} of {name} has {amounts}, such as {quoted(example)}, and each "
            f"would be a category: turn them into numbers (\"dataset.decimal=','\" and "
            f"dataset.thousands say how a file has them), {ways}"
        )
    if (different := column.nunique()) > max(len(column) / 2, FEW):
        if column.str.count(" ").mean() >= SENTENCE:
            text = naming("dataset.text", str(column.name))
            ways = f"to learn from texts set {text} model=text; {ways}"
        raise UserError(
            f"column {column.name} of {name} has {different} different texts in {len(column)} "
            f"rows, such as {quoted(example)}, like a column of names: {ways}"
        )


def _has_fractions(column: pd.Series) -> bool:
    return is_float_dtype(column) and bool((column % 1).any())


def distinct(column: pd.Series, name: str) -> list:
    """The distinct values of a column, sorted, without that of no value; UserError for too many."""
    values = all_distinct(column)
    if len(values) > MAX_CATEGORIES:
        raise UserError(
            f"column {column.name} of {name} has {len(values)} different values, and a column may "
            f"have at most {MAX_CATEGORIES} categories: leave it out with dataset.drop, or, if it "
            "is a target of numbers, set dataset.task=regression."
        )
    return values


def categories_of(column: pd.Series, columns: Columns, name: str) -> list:
    """The categories of a feature: the listed ones, or all that rows have."""
    return [*columns.listed.get(str(column.name), ())] or distinct(column, name)


def all_distinct(column: pd.Series) -> list:
    """The distinct values of a column, sorted, without that of no value."""
    values = column.dropna().unique().tolist()
    return sorted(values, key=lambda value: (isinstance(value, str), value))


def codes(column: pd.Series) -> np.ndarray:
    """The rank of each row's value among the distinct values [n]."""
    numbers = {value: number for number, value in enumerate(distinct(column, "the table"))}
    return column.map(numbers).to_numpy("int64")
