"""How rows of the user's own table become inputs of a model, kept to prepare new rows alike."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpbench.data.custom.table import NONE, REGRESSION, TRAIN, Columns, distinct
from dpbench.errors import UserError
from dpbench.validate import quoted

UNSCALED = (0.0, 1.0)
"""The mean and the deviation with which numbers stay as they are."""


@dataclass(frozen=True)
class TablePreparation:
    """Numbers minus a mean and divided by a deviation, then one feature for each category.

    numbers: mean and deviation by column; categories: the values by column; classes: the values of
    the target in the order of the model's outputs, () for regression; target: mean and deviation of
    a regression's, whose model predicts (target - mean)/deviation. All are read from the user's
    data: means and deviations from training rows with `standardise: train`, which no epsilon
    covers, and categories from all rows.
    """

    numbers: dict[str, tuple[float, float]]
    categories: dict[str, tuple]
    classes: tuple
    target: tuple[float, float] = UNSCALED

    def __call__(self, frame: pd.DataFrame) -> Tensor:
        """The inputs [n, d] float32 of the rows of a table with these columns, and perhaps others.

        Raises UserError for a column that is missing, and for a value that the column cannot have.
        """
        if missing := [name for name in (*self.numbers, *self.categories) if name not in frame]:
            raise UserError(f"the table has no column {missing[0]}, which the model needs.")
        parts = [self._number(frame[name]) for name in self.numbers]
        parts += [self._one_hot(frame[name]) for name in self.categories]
        return torch.from_numpy(np.concatenate(parts, axis=1).astype("float32"))

    def predictions(self, outputs: Tensor) -> Tensor:
        """The numbers [n] that a regression's outputs [n, 1] stand for, in the target's unit."""
        mean, deviation = self.target
        return outputs.squeeze(1) * deviation + mean

    def scaled_targets(self, targets: np.ndarray) -> np.ndarray:
        """What a regression's model predicts [n] float32, for targets in their unit [n]."""
        mean, deviation = self.target
        return ((targets - mean) / deviation).astype("float32")

    def _number(self, column: pd.Series) -> np.ndarray:
        mean, deviation = self.numbers[str(column.name)]
        values = pd.to_numeric(column, errors="coerce").to_numpy("float64")
        _check(np.isfinite(values), column, "not a number")
        return ((values - mean) / deviation)[:, None]

    def _one_hot(self, column: pd.Series) -> np.ndarray:
        categories = self.categories[str(column.name)]
        found = column.map({value: place for place, value in enumerate(categories)})
        _check(found.notna().to_numpy(), column, "not a category of the run's table")
        return np.eye(len(categories))[found.to_numpy("int64")]

    def json(self) -> str:
        """Its text, which `load_preparation` reads."""
        return json.dumps(vars(self), default=_plain, indent=1) + "\n"


def _plain(value: Any) -> Any:
    return value.item()


def _check(usable: np.ndarray, column: pd.Series, what: str) -> None:
    if not usable.all():
        place = int(np.flatnonzero(~usable)[0])
        value = quoted(column.tolist()[place])
        raise UserError(f"column {column.name} has {value} in row {place + 1}, which is {what}.")


def prepared_by(
    frame: pd.DataFrame,
    columns: Columns,
    standardise: str | Mapping[str, list[float]],
    train: np.ndarray,
) -> TablePreparation:
    """The preparation of a table.

    standardise: `train` for statistics of the rows `train`, `none`, or mean and deviation by
    column. A column that does not vary is only centred.
    """

    def constants(name: str) -> tuple[float, float]:
        if standardise == TRAIN:
            values = frame[name].to_numpy("float64")[train]
            return float(values.mean()), float(values.std(ddof=1)) or 1.0
        if standardise == NONE:
            return UNSCALED
        assert isinstance(standardise, Mapping)
        mean, deviation = standardise.get(name, UNSCALED)
        return mean, deviation

    numbers = {name: constants(name) for name in columns.numbers(frame)}
    categorical = [name for name in columns.features(frame) if name not in numbers]
    categories = {name: tuple(distinct(frame[name], "the table")) for name in categorical}
    if columns.task == REGRESSION:
        return TablePreparation(numbers, categories, (), constants(columns.target))
    classes = tuple(distinct(frame[columns.target], "the table"))
    return TablePreparation(numbers, categories, classes)


def load_preparation(path: str | Path) -> TablePreparation:
    """The preparation that a run on the user's own table has kept beside its model.

    Raises UserError for a file that is none.
    """
    try:
        plain = json.loads(Path(path).read_text())
        mean, deviation = plain.get("target", UNSCALED)
        return TablePreparation(
            {name: (float(m), float(d)) for name, (m, d) in plain["numbers"].items()},
            {name: tuple(values) for name, values in plain["categories"].items()},
            tuple(plain["classes"]),
            (float(mean), float(deviation)),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{path} is not the preparation of a table: such a file is written by a run with "
            "save_model=true on a table of your own."
        ) from error
