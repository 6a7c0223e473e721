"""What the user's own data are, before anything is trained on them: exact facts."""

import statistics
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_float_dtype, is_numeric_dtype

from dpbench.learning.data.custom import identifiers
from dpbench.learning.data.custom.column_types import FEW, amounts_in, plain
from dpbench.learning.data.custom.columns import Columns, check_standardise, columns_of, without
from dpbench.learning.data.custom.oddities import copies_in
from dpbench.learning.data.custom.people import are_of_column, people_of
from dpbench.learning.data.custom.public_settings import SOURCES, with_public_settings
from dpbench.learning.data.custom.sizes import size_of
from dpbench.learning.data.custom.source import OwnTable
from dpbench.learning.data.custom.table import check_values, image_columns
from dpbench.learning.data.custom.texts import has_texts, text_columns
from dpbench.system.errors import UserError, counted
from dpbench.system.validate import for_column, quoted


class ColumnFacts(NamedTuple):
    """A column: what its values are, how many rows have none, how many differ, the lowest and
    highest or the most frequent ones, what becomes of it, and what that reads from the data."""

    name: str
    kind: str
    missing: int
    different: int
    values: str
    becomes: str
    cost: str


@dataclass(frozen=True)
class Intake:
    """What would be trained on. All counts are exact, so no epsilon covers them.

    lines: of the file, with that of names. test_rows: of the publisher's test file or part.
    known_test_rows: test rows that are in training; copies: training rows that are equal to earlier
    ones. people: the number of rows of each person, () without `users=column`. identifiers: columns
    that seem to say whose a row is, with repeated values. classes, groups: with their numbers of
    rows. told: what a run warns of. refused: why there is no run, "" if nothing hinders one.
    """

    source: str
    lines: int | None
    rows: int
    test_rows: int
    known_test_rows: int
    copies: int
    people: tuple[int, ...]
    identifiers: tuple[str, ...]
    classes: dict[str, int]
    groups: dict[str, int]
    columns: tuple[ColumnFacts, ...]
    told: tuple[str, ...]
    refused: str


BY_NOISE = ": normalization=private_columns"
"""How a cost names what would measure it with noise."""


def intake(node: Mapping[str, Any], users: Any) -> Intake:
    """The facts of a data set's settings and its users'; UserError for data that cannot be read."""
    source = SOURCES.get(str(node.get("_target_")))
    if source is None or node.get(source.setting) is None:
        raise UserError(
            "an intake page is of data of your own, such as dataset=csv dataset.file=F."
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = source.read(node)
        refused = ""
        try:
            with_public_settings(node, users)
        except UserError as error:
            refused = str(error)
    told = tuple(dict.fromkeys(str(warning.message) for warning in caught))
    user = users["column"] if are_of_column(users) else None
    columns = _columns({**node, "user": user}, table)
    frame = table.frame
    used = [name for name in frame if name not in columns.drop and name != user]
    known, copies = copies_in([plain(frame[name]) for name in used], table.test)
    file = Path(str(node[source.setting])).expanduser()
    counted = file.is_file() and file.suffix.lower() != ".parquet"
    return Intake(
        source=f"dataset.{source.setting}={node[source.setting]}",
        lines=size_of(file, ",", whole=True).lines if counted else None,
        rows=len(frame),
        test_rows=table.test.number,
        known_test_rows=known,
        copies=copies,
        people=_sizes(frame, columns),
        identifiers=() if user else tuple(identifiers.repeating(frame)),
        classes=_counts(frame, [columns.target] if columns.task == "classification" else []),
        groups=_counts(frame, [*columns.group]),
        columns=tuple(_facts(node, columns, table)),
        told=told,
        refused=refused,
    )


def _sizes(frame: pd.DataFrame, columns: Columns) -> tuple[int, ...]:
    if columns.user is None or columns.user not in frame:
        return ()
    people = people_of(frame, columns.user, columns.missing_values)
    return tuple(np.bincount(people[people >= 0]).tolist())


def _columns(settings: Mapping[str, Any], table: OwnTable) -> Columns:
    try:
        return image_columns(settings, table) if table.images else columns_of(settings, table.frame)
    except (UserError, KeyError):  # a file of one's own may lack settings
        user, scale = settings["user"], _standardise(settings)
        return Columns("", (), (), (), "classification", user=user, standardise=scale)


def _standardise(settings: Mapping[str, Any]) -> Any:
    scale = settings.get("standardise", "none")
    with suppress(UserError):
        check_standardise(scale)
        return scale
    return "none"


def _counts(frame: pd.DataFrame, names: list[str]) -> dict[str, int]:
    if not names or not {*names} <= {*frame}:
        return {}
    sizes = frame[names].astype(str).value_counts(sort=False).sort_index()
    return {" & ".join(key): int(size) for key, size in sizes.items()}


def _facts(settings: Mapping[str, Any], columns: Columns, table: OwnTable) -> Iterator[ColumnFacts]:
    for name in table.frame:
        column = plain(without(table.frame[name], columns.missing_values))
        becomes, cost = _fate(settings, columns, table, column)
        yield ColumnFacts(
            str(name),
            _kind(column),
            int(column.isna().sum()),
            int(column.nunique()),
            _values(column),
            becomes,
            cost,
        )


def _kind(column: pd.Series) -> str:
    if is_bool_dtype(column):
        kind = "truth values"
    elif is_numeric_dtype(column):
        kind = "numbers" if is_float_dtype(column) and (column % 1 > 0).any() else "whole numbers"
    else:
        kind = amounts_in(column) or "texts"
    if column.nunique() == 1:
        return f"constant {kind}"
    return f"{kind}, an identifier?" if identifiers.seems_identifier(column) else kind


def _values(column: pd.Series) -> str:
    if is_numeric_dtype(column) and not is_bool_dtype(column):
        return f"{column.min():.10g} to {column.max():.10g}" if column.notna().any() else ""
    common = column.value_counts().head(3)
    return ", ".join(f"{quoted(value)} ({size:,})" for value, size in common.items())


def _fate(
    settings: Mapping[str, Any], columns: Columns, table: OwnTable, column: pd.Series
) -> tuple[str, str]:
    name = str(column.name)
    texts = text_columns(settings["text"], table.frame) if has_texts(settings) else ()
    if name == columns.user:
        return "says whose a row is", ""
    if name in columns.drop and name not in columns.group:
        return "left out", ""
    if name in texts:
        return "tokens", ""
    if texts and name not in columns.needed:
        return "left out", ""
    try:
        check_values(pd.DataFrame({name: column}), columns, table.name, table.test)
    except UserError as error:
        return f"refused: {error}", ""
    role = "groups, and " if name in columns.group else ""
    if name == columns.target and columns.task == "classification":
        return f"{role}classes", "classes from all rows"
    if table.images:
        return role.removesuffix(", and ") or "not used", ""
    becomes, cost = _encoded(columns, column)
    if name == columns.target:
        return f"target, {becomes}", cost
    if column.isna().any() and columns.missing in ("impute", "indicator"):
        more = ", and one that says so" if columns.missing == "indicator" else ""
        becomes += f"; the mean, or no category, where missing{more}"
    return role + becomes, cost


def _encoded(columns: Columns, column: pd.Series) -> tuple[str, str]:
    name, scale = str(column.name), columns.standardise
    if most := columns.selected.get(name):
        cost = f"frequent values, with noise{BY_NOISE}"
        return f"{most + 1} features: {counted(most, 'value')} at most, and others", cost
    if listed := columns.listed.get(name):
        features = counted(len(listed), "feature")
        return f"{features}, one for each listed value", "public categories"
    if columns.is_categorical(column):
        rarest = int(column.value_counts().min()) if column.notna().any() else 0
        private = f"with noise: {for_column('dataset.categories', name, FEW)}"
        cost = f"values from all rows (the rarest is in {rarest:,}); {private}"
        return f"{counted(column.nunique(), 'feature')}, one for each value", cost
    if name in columns.bounds:
        low, high = columns.bounds[name]
        private = f"with noise{BY_NOISE}"
        return (
            f"{low:g} to {high:g} scaled to -1 to 1",
            f"public range; mean and deviation {private}",
        )
    if scale == "train":
        free = for_column("dataset.standardise", name, "[MEAN, DEVIATION]")
        private = f"with noise: {for_column('dataset.bounds', name, '[LOWEST, HIGHEST]')}"
        return "z-scores", f"exact mean and deviation; free: {free}; {private}"
    if isinstance(scale, Mapping) and name in scale:
        mean, deviation = scale[name]
        return f"less {mean:g}, over {deviation:g}", "public constants"
    return "as they are", ""


def rows_of_people(sizes: tuple[int, ...]) -> str:
    """How many rows people have, in words."""
    return f"{min(sizes):,} to {max(sizes):,} rows each, {statistics.median(sizes):g} in the median"
