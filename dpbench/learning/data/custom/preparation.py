"""How rows of the user's own table become inputs of a model, kept to prepare new rows alike."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpbench.learning.data.custom.column_types import plain
from dpbench.learning.data.custom.columns import Columns, without
from dpbench.learning.data.custom.source import NO_TEST, TestRows
from dpbench.learning.data.custom.table import categories_of, distinct
from dpbench.learning.data.numeric import ROUNDING, deviations
from dpbench.system.errors import UserError, counted, warn
from dpbench.system.validate import LARGEST, path_of, quoted

UNSCALED = (0.0, 1.0)
"""The mean and the deviation with which numbers stay as they are."""


Number = Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
Deviation = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=LARGEST)]
Category = str | int | float | bool | None
Values = dict[str, tuple[Category, ...]]
"""The values of columns, by name."""


class TablePreparation(msgspec.Struct, frozen=True):
    """Numbers minus a mean and divided by a deviation, then one feature for each category.

    numbers: mean and deviation by column, 0 for one that does not vary; categories: the values by
    column; classes: the values of the target in the order of the model's outputs, () for
    regression; target: mean and deviation of a regression's, whose model predicts
    (target - mean)/deviation; farthest: from how many deviations on a number is taken as the
    nearest within, with a warning. incomplete: the columns that may have no value, which is then
    the mean of a number, or the middle of its range, and none of the categories; indicators:
    whether a last feature of each of them says so. missing_values: what stands for no value.
    listed: the columns whose categories are public, where other values belong to none. ranges: the
    public bounds of numbers, to which these are clipped. selected: by column, the categories that
    were selected with noise, None for one that was not; each is a feature, and one more says that a
    value is none of them.

    All but public ones are read from the user's data: means and deviations from training rows with
    `standardise: train`, which no epsilon covers, or measured with noise, and categories from all
    rows.
    """

    numbers: dict[str, tuple[Number, Deviation]]
    categories: dict[str, tuple[Category, ...]]
    classes: tuple[Category, ...]
    target: tuple[Number, Positive] = UNSCALED
    farthest: Positive | None = None
    incomplete: tuple[str, ...] = ()
    indicators: bool = False
    missing_values: tuple[Category, ...] = ()
    listed: tuple[str, ...] = ()
    ranges: dict[str, tuple[Number, Number]] = {}
    selected: dict[str, tuple[Category, ...]] = {}

    def __call__(self, frame: pd.DataFrame, test: TestRows = NO_TEST) -> Tensor:
        """The inputs [n, d] float32 of the rows of a table with these columns, and perhaps others.

        Raises UserError for a column that is missing, and for a value that the column cannot have.
        """
        used = (*self.numbers, *self.categories, *self.selected)
        if missing := [name for name in used if name not in frame]:
            raise UserError(f"the table has no column {missing[0]}, which the model needs.")
        if self.missing_values:
            frame = frame.apply(without, marks=self.missing_values)
        parts = [np.empty((len(frame), 0))]  # a table of selected categories has no others
        parts += [self._number(frame[name], test) for name in self.numbers]
        parts += [self._one_hot(frame[name]) for name in self.categories]
        if self.indicators:
            parts += [frame[name].isna().to_numpy()[:, None] for name in self.incomplete]
        parts += [self._one_hot(frame[name]) for name in self.selected]
        return torch.from_numpy(np.concatenate(parts, axis=1).astype("float32"))

    def predictions(self, outputs: Tensor) -> Tensor:
        """The numbers [n] that a regression's outputs [n, 1] stand for, in the target's unit."""
        mean, deviation = self.target
        return outputs.squeeze(1) * deviation + mean

    def scaled_targets(self, targets: np.ndarray) -> np.ndarray:
        """What a regression's model predicts [n] float32, for targets in their unit [n]."""
        mean, deviation = self.target
        return ((targets - mean) / deviation).astype("float32")

    def _number(self, column: pd.Series, test: TestRows) -> np.ndarray:
        mean, deviation = self.numbers[str(column.name)]
        values = pd.to_numeric(plain(column), errors="coerce").to_numpy("float64")
        usual = sum(self.ranges.get(str(column.name), (mean, mean))) / 2
        values = np.where(self._absent(column), usual, values)
        _check(np.abs(values) <= LARGEST, column, "not a number")
        return ((self._near(values, column, test) - mean) / (deviation or math.inf))[:, None]

    def _near(self, values: np.ndarray, column: pd.Series, test: TestRows) -> np.ndarray:
        """The values, or the nearest ones to which training rows can have come."""
        limits, where = self._limits(str(column.name))
        near = np.clip(values, *limits)
        if (far := near != values).any():
            others = f" and {counted(far.sum() - 1, 'other')}" if far.sum() > 1 else ""
            warn(
                f"column {column.name} has {values[far][0]:g} in {test.first(far)}{others}, "
                f"{where}: taken as {near[far][0]:g}."
            )
        return near

    def _limits(self, name: str) -> tuple[tuple[float, float], str]:
        if name in self.ranges:
            return self.ranges[name], "outside of its bounds"
        mean, deviation = self.numbers[name]
        reach = math.inf
        if self.farthest is not None:
            reach = self.farthest * max(deviation, ROUNDING * abs(mean))
        where = "farther from the training rows' mean than any of them can be"
        return (mean - reach, mean + reach), where

    def _one_hot(self, column: pd.Series) -> np.ndarray:
        name = str(column.name)
        selected = name in self.selected
        categories = (*self.selected[name], None) if selected else self.categories[name]
        values = plain(column)
        found = values.map({v: place for place, v in enumerate(categories) if v is not None})
        none = found.isna() if name in self.listed else self._absent(column)
        if selected:
            found = found.fillna(len(categories) - 1)
        found = found.mask(none, len(categories))
        _check(found.notna().to_numpy(), column, "not a category of the run's table")
        return np.eye(len(categories) + 1, len(categories))[found.to_numpy("int64")]

    def _absent(self, column: pd.Series) -> np.ndarray:
        """Which rows have no value where they need none [n]."""
        return column.isna().to_numpy() & (column.name in self.incomplete)

    def json(self, privacy: str) -> str:
        """Its text, which `load_preparation` reads. privacy: what whoever gets the file alone has
        to know of it."""
        content = {"privacy": privacy, **msgspec.structs.asdict(self)}
        return json.dumps(content, default=lambda value: value.item(), indent=1) + "\n"


def _check(usable: np.ndarray, column: pd.Series, what: str) -> None:
    if not usable.all():
        place = int(np.flatnonzero(~usable)[0])
        value = quoted(column.tolist()[place])
        raise UserError(f"column {column.name} has {value} in row {place + 1}, which is {what}.")


def prepared_by(frame: pd.DataFrame, columns: Columns, train: np.ndarray) -> TablePreparation:
    """The preparation of a table.

    train: places of the training rows. With `standardise: train`, values are clipped at sqrt(n)
    deviations, which none of n training rows exceeds (Samuelson 1968): so they are those of rows
    that the model never saw. With bounds, numbers are scaled to -1 to 1 by these, and clipped.
    """
    standardise = columns.standardise

    def constants(name: str) -> tuple[float, float]:
        if name in columns.bounds:
            low, high = columns.bounds[name]
            return (low + high) / 2, (high - low) / 2
        if standardise == "train":
            values = frame[name].iloc[train].dropna().to_numpy("float64")
            if len(values) < 2:
                return 0.0, 0.0
            return float(values.mean()), float(deviations(values))
        if standardise == "none":
            return UNSCALED
        assert isinstance(standardise, Mapping)
        mean, deviation = standardise.get(name, UNSCALED)
        return mean, deviation

    numbers = {name: constants(name) for name in columns.numbers(frame)}
    others = (*numbers, *columns.selected)
    categorical = [name for name in columns.features(frame) if name not in others]
    categories = {
        name: tuple(categories_of(frame[name], columns, "the table")) for name in categorical
    }
    farthest = math.sqrt(len(train)) if standardise == "train" and not columns.bounds else None
    regression = columns.task == "regression"
    mean, deviation = constants(columns.target) if regression else UNSCALED
    return TablePreparation(
        numbers,
        categories,
        () if regression else tuple(distinct(frame[columns.target], "the table")),
        (mean, deviation or 1.0),
        farthest,
        tuple(columns.incomplete(frame)),
        columns.missing == "indicator",
        columns.missing_values,
        tuple(columns.listed),
        {name: (low, high) for name, (low, high) in columns.bounds.items() if name in numbers},
    )


def load_preparation(path: str | Path) -> TablePreparation:
    """The preparation that a run on the user's own table has kept beside its model.

    Raises UserError for a file that is none.
    """
    try:
        file = path_of("the preparation", str(path), "file")
        if not file.is_file():  # a pipe might never end
            raise FileNotFoundError(file)
        return msgspec.json.decode(file.read_bytes(), type=TablePreparation)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is not the preparation of a table: such a file is written by a run with "
            "save_model=true on a table of your own."
        ) from error
