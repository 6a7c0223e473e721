"""The role of each column of the user's own tables."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from dpbench.learning.data.custom.column_types import plain
from dpbench.system.errors import UserError, nearest
from dpbench.system.validate import (
    as_text,
    integer,
    is_integer,
    is_number,
    naming,
    one_of,
    quoted,
    quotes_hint,
    typed,
)

TASKS = ("classification", "regression", "language_model")

MAX_CATEGORIES = 1_000
"""The most categories of a column: a column with more is one of names or free text."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table by their role.

    target: the column to predict. group: the columns whose values, or intersections of values, are
    the groups that metrics are reported for; features too, unless they are in drop. categorical:
    columns of numbers that are categories; columns of text always are. drop: columns to leave out.
    missing: what a feature without a value is: refused; imputed, that is the mean of a number and
    none of the categories; or imputed beside a feature that says so, an indicator. missing_values:
    what stands for no value, beside an empty one. user: the column of the people whose rows are
    protected together, which is no feature. standardise: what numbers are scaled by; see
    `check_standardise`. bounds: the public range of each number, if any is given. listed: by
    column, its public categories; other values belong to none. selected: by column, the number of
    categories that are selected with noise; other values are one more.
    """

    target: str
    group: tuple[str, ...]
    categorical: tuple[str, ...]
    drop: tuple[str, ...]
    task: str
    missing: str = "refuse"
    missing_values: tuple[str | float, ...] = ()
    user: str | None = None
    standardise: str | Mapping[str, Sequence[float]] = "none"
    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    listed: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    selected: Mapping[str, int] = field(default_factory=dict)

    @property
    def as_settings(self) -> dict[str, Any]:
        """The names of the columns, completed, as settings have them."""
        groups = [*self.group]
        group = groups if len(groups) > 1 else next(iter(groups), None)
        return {"target": self.target, "group": group}

    def plain(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The columns in use, with numbers, truth values and texts only, where they can be."""
        used = [*dict.fromkeys((*self.features(frame), *self.needed))]
        columns = (without(frame[name], self.missing_values) for name in used)
        return pd.DataFrame({column.name: plain(column) for column in columns})

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that cannot be left out, each once."""
        return tuple(dict.fromkeys((self.target, *self.group)))

    def features(self, frame: pd.DataFrame) -> list[str]:
        """The columns that are features."""
        return [name for name in frame if name not in (self.target, self.user, *self.drop)]

    def incomplete(self, frame: pd.DataFrame) -> list[str]:
        """The features that may have no value; with indicators, those that do have gaps."""
        if self.missing == "refuse":
            return []
        features = [name for name in self.features(frame) if name not in self.group]
        return [n for n in features if self.missing == "impute" or frame[n].isna().any()]

    def numbers(self, frame: pd.DataFrame) -> list[str]:
        """The features that are numbers rather than categories."""
        return [name for name in self.features(frame) if not self.is_categorical(frame[name])]

    def is_categorical(self, column: pd.Series) -> bool:
        """Whether a column is encoded as one feature for each of its values."""
        numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
        return column.name in self.categorical or not numeric


def columns_of(settings: Mapping[str, Any], frame: pd.DataFrame) -> Columns:
    """The columns that settings name; UserError for names that the table does not have."""
    known = list(frame)
    one_of("dataset.task", settings["task"], TASKS)
    missing = settings.get("missing", "refuse")
    one_of("dataset.missing", missing, ("refuse", "impute", "indicator"))
    target, group = settings["target"], settings["group"]
    if settings["task"] == "language_model":
        target = _predicted_text(settings, known)
    if target is None:
        raise UserError(f"dataset.target must name the column to predict: {nearest('', known)}")
    target = named("dataset.target", target, known)
    groups = group if isinstance(group, list | tuple) else [] if group is None else [group]
    bounds, listed = settings.get("bounds") or {}, settings.get("categories") or {}
    typed("dataset.bounds", bounds, dict[str, list[float]])
    typed("dataset.categories", listed, dict[str, list[str | float] | int])
    check_standardise(settings["standardise"])
    several = group is groups
    lists = {"group": tuple(named("dataset.group", name, known, several) for name in groups)}
    if len({*lists["group"]}) < len(groups):
        raise UserError(f"dataset.group=[{','.join(lists['group'])}] names a column twice.")
    for key in ("categorical", "drop"):
        typed(f"dataset.{key}", settings[key], list[str | float])
        lists[key] = tuple(named(f"dataset.{key}", name, known, True) for name in settings[key])
    if target in lists["drop"]:
        raise UserError(f"dataset.target={target} cannot be dropped.")
    if settings["task"] == "regression" and target in lists["group"]:
        raise UserError(f"dataset.target={target} cannot be the group, as it is a number.")
    if (user := settings.get("user")) == target:
        raise UserError(f"users.column={user} cannot be the target.")
    columns = Columns(
        target,
        **lists,
        task=settings["task"],
        missing=missing,
        missing_values=marks_of(settings),
        user=user,
        standardise=settings["standardise"],
        bounds=bounds,
        listed={name: given for name, given in listed.items() if not is_integer(given)},
        selected={name: listed[name] for name in sorted(listed) if is_integer(listed[name])},
    )
    if bounds or listed or isinstance(columns.standardise, Mapping):
        _check_constants(columns, columns.plain(frame))
    return columns


def _predicted_text(settings: Mapping[str, Any], known: Collection[str]) -> str:
    """The text whose words a language model predicts: the only one, or the second of two; UserError
    for another target."""
    text = settings.get("text")
    several = isinstance(text, list | tuple)
    if not text:
        raise UserError("dataset.task=language_model needs dataset.text=COLUMN.")
    predicted = named("dataset.text", text[-1] if several else text, known, several)
    if settings["target"] not in (None, predicted):
        raise UserError(
            f"dataset.target={settings['target']} is not what dataset.task=language_model "
            f"predicts, which is the text in column {predicted}: leave it out."
        )
    return predicted


def check_standardise(value: str | Mapping[str, Sequence[float]]) -> None:
    """UserError for other than `train`, for means and deviations of training rows, `none`, or
    public ones by column."""
    typed("dataset.standardise", value, str | dict[str, list[float]])
    if isinstance(value, Mapping):
        for column, pair in value.items():
            if len(pair) != 2 or pair[1] <= 0:
                raise UserError(f"dataset.standardise.{column} must be [mean, deviation above 0].")
    elif value not in ("train", "none"):
        raise UserError(
            f"dataset.standardise={quoted(value)} is unknown: write train, none, or "
            "mean and standard deviation by column, e.g. 'dataset.standardise={age: [40, 15]}'."
        )


def _check_constants(columns: Columns, frame: pd.DataFrame) -> None:
    targets = [columns.target] if columns.task == "regression" else []
    numbers = [*columns.numbers(frame), *targets]  # which may have a mean and a deviation
    if columns.bounds:
        _check_bounds(columns, numbers)
    categorical = [n for n in columns.features(frame) if columns.is_categorical(frame[n])]
    for name in (*columns.listed, *columns.selected):
        one_of("dataset.categories", name, categorical)
    for name, most in columns.selected.items():
        integer(f"dataset.categories.{name}", most, most=MAX_CATEGORIES)
    for name in columns.standardise if isinstance(columns.standardise, Mapping) else ():
        one_of("dataset.standardise", name, numbers)


def _check_bounds(columns: Columns, numbers: Sequence[str]) -> None:
    if isinstance(columns.standardise, Mapping):
        raise UserError("dataset.bounds scales all numbers by their range: leave out standardise.")
    for name, pair in columns.bounds.items():
        one_of("dataset.bounds", name, numbers)
        if len(pair) != 2 or not pair[0] < pair[1]:
            raise UserError(f"dataset.bounds.{name} must be [lowest, highest].")
    if missing := [name for name in numbers if name not in columns.bounds]:
        raise UserError(
            f"dataset.bounds has no range of column {missing[0]}: give one for each number, or "
            f"leave the column out with {naming('dataset.drop', [missing[0]])}."
        )


def marks_of(settings: Mapping[str, Any]) -> tuple[str | float, ...]:
    """What settings say stands for no value; UserError unless that is a list."""
    marks = settings.get("missing_values") or []
    typed("dataset.missing_values", marks, list[str | float])
    return tuple(marks)


def without(column: pd.Series, marks: Sequence[str | float]) -> pd.Series:
    """A column without the values that stand for none."""
    return column.mask(column.isin(marks)) if marks else column


def named(what: str, value: object, known: Collection[str], one_of_several: bool = False) -> str:
    """The column that the setting `what` names; a number stands for the column that is named so.

    one_of_several: whether the value is part of a list.
    """
    if value is None and not {"null", "none"}.intersection(map(str.lower, known)):
        raise UserError(f"{what} is missing, which names a column: {nearest('', known)}")
    if isinstance(value, str) or str(value) in known:
        return one_of(what, str(value), known)
    meant = next((name for name in known if _is_read_as(name, value)), None)
    if meant is None and is_integer(value):
        return one_of(what, str(value), known)
    text = as_text(value) if meant is None else meant
    raise UserError(
        f"{what} must name a column, got {quoted(value)}"
        f"{quotes_hint(what, [text] if one_of_several else text)}; {nearest(str(text), known)}"
    )


def _is_read_as(name: str, value: object) -> bool:
    """Whether a column's name is read as this number or truth value where it is not quoted."""
    if isinstance(value, bool) or not is_number(value):
        return name.lower() == str(value).lower()
    try:
        return float(name) == value
    except ValueError:
        return False
