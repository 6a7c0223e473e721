"""Numeric features, and data sets for regression on them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from dpbench.system.validate import integer

ROUNDING = 1e-12
"""The standard deviation, as a share of the mean, up to which a column does not vary."""


@dataclass(frozen=True)
class RegressionRows:
    """Base of regression data sets in one file without a split.

    test_size: test rows, drawn by a shuffle; rows: all rows of the file.
    """

    test_size: int

    rows: ClassVar[int]
    task = "regression"
    classes = 1
    groups = ("all",)
    notes = (
        "The z-scores of the features are taken from all rows, test included.",
        "The publishers' file has no split: the test rows are drawn by seed.",
    )

    def __post_init__(self) -> None:
        integer("test_size", self.test_size, least=2, most=self.rows - 1)  # R² of one is undefined

    @property
    def train_size(self) -> int:
        return self.rows - self.test_size


def deviations(values: np.ndarray) -> np.ndarray:
    """Standard deviations (n - 1) over the rows, with 0 for a column that does not vary.

    What is left of such a column is the rounding of its mean.
    """
    deviation = values.std(axis=0, ddof=1)
    return np.where(deviation > ROUNDING * np.abs(values.mean(axis=0)), deviation, 0.0)


def z_scores(features: np.ndarray) -> Tensor:
    """Features [n, d] with mean 0 and standard deviation 1 (n - 1), as float32.

    A column that does not vary is 0. The statistics are those of the given rows, without
    accounting: data sets say so in their notes.
    """
    deviation = deviations(features)
    scores = (features - features.mean(axis=0)) / np.where(deviation, deviation, np.inf)
    return torch.from_numpy(scores).float()
