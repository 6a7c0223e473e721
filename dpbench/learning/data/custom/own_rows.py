"""What all of the user's own data sets have: a public size, a checksum, and a split."""

import re
from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from msgspec import Meta

from dpbench.learning.data.custom.people import people_of
from dpbench.learning.data.custom.source import OwnTable
from dpbench.learning.data.dataset import Fact
from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.splits import drawn, held_out
from dpbench.system.errors import UserError, counted
from dpbench.system.seeds import numpy_generator
from dpbench.system.validate import Fraction, Whole, integer, quoted


@dataclass(frozen=True, kw_only=True)
class RowSplit:
    """Examples that are split at random, or as their publisher has split them.

    name: that of the data, by default their file's. checksum: that of what is read. test_share: the
    share of the examples to test on, after a shuffle by split_seed, or by the seed of the run if
    that is None. rows, classes, groups: public; filled in from the data unless they are given.
    test_rows: the number of test examples of the publisher, which are the last; None draws them.
    user: the column of the people whose examples are protected together, which `users=column`
    names; people: their number, in training only if test_rows is set.
    """

    name: str | None
    checksum: str | None
    test_share: Fraction
    split_seed: Whole | None
    rows: int | None
    classes: int | None
    groups: list[str] | None
    test_rows: int | None = None
    user: str | None = None
    people: Annotated[int, Meta(ge=2)] | None = None

    def __post_init__(self) -> None:
        if self.rows is None or self.name is None:
            raise UserError(f"this data set reads data of your own: set {self.needs}.")
        if not re.fullmatch(r"\w[\w.-]*", self.name):
            raise UserError(
                f"dataset.name={quoted(self.name)} must consist of letters, digits, _, . and -, "
                "and must not begin with . or -."
            )
        integer("dataset.rows", self.rows, least=2)
        integer("dataset.classes", self.classes)
        if not self.groups or len({*self.groups}) < len(self.groups):
            raise UserError("dataset.groups must name each group once.")
        if self.test_rows is not None:
            integer("dataset.test_rows", self.test_rows, most=self.rows - 1)
        if self._test_size == 0:
            raise UserError(f"dataset.test_share={self.test_share} leaves no example to test on.")
        if self.random_size and self.train_people == self.people:
            raise UserError(
                f"dataset.test_share={self.test_share} of {self.people} people is nobody to test "
                "on: choose a larger share."
            )
        object.__setattr__(self, "groups", tuple(self.groups))

    needs = ""
    """The settings that have to be set."""

    @abstractmethod
    def read(self) -> OwnTable:
        """The rows of its source, verified."""

    @abstractmethod
    def encoded(self, table: OwnTable, train: np.ndarray, test: np.ndarray) -> tuple[Split, float]:
        """All rows as examples, and the unit of their targets; train, test: places of rows."""

    def load(self, folder: Path, seed: int) -> Data:
        """Read the rows, wherever the data folder is; UserError if they have changed."""
        table = self.read()
        if len(table.frame) != self.rows:
            raise UserError(
                f"{self.name} has {counted(len(table.frame), 'row')} and dataset.rows is "
                f"{self.rows}: it is truncated, or the number is wrong."
            )
        people = self._people(table.frame)
        parts = self.order(seed, people)
        rows, target_unit = self.encoded(table, *parts)
        if people is not None:
            rows = replace(rows, people=torch.from_numpy(people))
        return Data(*(rows.take(torch.from_numpy(part)) for part in parts), target_unit=target_unit)

    @property
    def random_size(self) -> bool:
        """Whether the number of training examples depends on the people who are drawn."""
        return self.people is not None and self.test_rows is None

    @property
    def train_size(self) -> int:
        """The number of training examples; expected, where whole people are drawn."""
        assert self.rows is not None
        if self.random_size:
            return self.rows * (self.train_people or 0) // (self.people or 1)
        return self.rows - self._test_size

    @property
    def train_people(self) -> int | None:
        """The number of people that the training examples are of."""
        if self.people is None or self.test_rows is not None:
            return self.people
        return self.people - held_out(self.people, self.test_share)

    @property
    def _test_size(self) -> int:
        assert self.rows is not None
        return held_out(self.rows, self.test_share) if self.test_rows is None else self.test_rows

    @property
    def facts(self) -> dict[str, Fact]:
        """The facts of the data that a run depends on."""
        names = ["number of rows", *(["number of people"] if self.user is not None else [])]
        return dict.fromkeys([*names, "classes and groups"], "exact")

    @property
    def _public(self) -> str:
        return (
            f"The number of examples ({self.rows}), the classes and the groups are taken to be "
            "public."
        )

    def _people(self, frame: pd.DataFrame) -> np.ndarray | None:
        return None if self.user is None else people_of(frame, self.user)

    def order(self, seed: int, people: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the training examples, and of the test examples.

        people: the number of each row's person [n], none of whom is then in both.
        """
        assert self.rows is not None
        if self.test_rows is not None:
            return np.arange(self.train_size), np.arange(self.train_size, self.rows)
        draws = numpy_generator(seed if self.split_seed is None else self.split_seed, "split")
        return drawn(self.rows, people, self.test_share, draws)
