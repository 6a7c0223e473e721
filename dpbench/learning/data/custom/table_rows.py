"""The user's own tables as data sets: a CSV file, or a table that the `datasets` library loads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch

from dpbench.learning.data.custom import csv_files, hub, texts
from dpbench.learning.data.custom.columns import TASKS, Columns, check_standardise, columns_of
from dpbench.learning.data.custom.oddities import warn_of_unseen
from dpbench.learning.data.custom.own_rows import RowSplit
from dpbench.learning.data.custom.preparation import TablePreparation, Values, prepared_by
from dpbench.learning.data.custom.source import OwnTable, TestRows
from dpbench.learning.data.custom.table import all_distinct, codes, distinct, groups_of
from dpbench.learning.data.dataset import MOMENTS, Fact, lengths_of
from dpbench.learning.data.examples import Split
from dpbench.learning.data.tokens import TextPreparation, Tokens, check_lengths, with_predicted
from dpbench.system.validate import integer, is_integer, one_of


@dataclass(frozen=True, kw_only=True)
class TableRows(RowSplit):
    """Rows of a table; see `dpbench.data.custom.columns.Columns` for its columns.

    standardise: `train` for z-scores by the training rows, which no epsilon covers; `none`; or
    public constants, mean and standard deviation by column. It applies to the target of regression
    too. bounds: the public range of each number, which is scaled to -1 to 1 in place of that.
    categories: the public categories of columns, or how many are selected with noise. features:
    their number. large: whether a table of more than a hundred million values is read
    (`dpbench.data.custom.sizes`). missing_values: what stands for no value.

    Of a file: separator, by default that of its ending; quotes: `double` or `single` if values may
    be in such quotes; `none`, and a quote is a character; header: `first` if the first line has the
    names of the columns; `none`, and these are 1, 2, ...; encoding: that of its text; skip: lines
    before the first; decimal: the sign before decimals; thousands: that between thousands.

    text: one or two columns of text, which are then the only features; tokenizer: the folder of
    theirs, with its checksum, its number of tokens and that of padding; length: T, the most tokens
    of a row; lengths: see `dpbench.data.tokens.Tokens`.
    """

    target: str | None
    group: str | list[str] | None = field(hash=False)
    categorical: list[str] = field(hash=False)
    drop: list[str] = field(hash=False)
    task: str
    standardise: str | dict[str, list[float]] = field(hash=False)
    features: int | None
    missing: str = "refuse"
    large: bool = False
    separator: str | None = None
    quotes: str = "double"
    header: str = "first"
    encoding: str = "utf-8"
    skip: int = 0
    decimal: str = "."
    thousands: str | None = None
    missing_values: list[str | float] = field(default_factory=list, hash=False)
    bounds: dict[str, list[float]] | None = field(default=None, hash=False)
    categories: dict[str, list[str | float] | int] | None = field(default=None, hash=False)
    text: str | list[str] | None = field(default=None, hash=False)
    tokenizer: str | None = None
    tokenizer_checksum: str | None = None
    vocabulary: int | None = None
    padding: int | None = None
    length: int | None = None
    lengths: list[int] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("dataset.task", self.task, TASKS)
        integer("dataset.features", self.features)
        check_lengths("dataset.lengths", self.lengths)
        check_standardise(self.standardise)

    @property
    def shape(self) -> tuple[int, ...]:
        assert self.features is not None
        if self.text is not None and self.length is not None:
            return (2, self.length)
        return (self.features,)

    @property
    def pairs(self) -> bool:
        """Whether an example is two texts."""
        return self.text is not None and not isinstance(self.text, str)

    @property
    def bounded(self) -> int:
        """The number of features between -1 and 1 by public bounds, which are the first."""
        names = self.bounds or {}
        return len(names) - (self.task == "regression" and self.target in names)

    @property
    def selected(self) -> tuple[int, ...]:
        """For each column whose categories are selected with noise, the most that are."""
        given = {} if self.text is not None else self.categories or {}
        return tuple(most for _, most in sorted(given.items()) if is_integer(most))

    @property
    def facts(self) -> dict[str, Fact]:
        """The facts of all data, and those by which inputs are made of rows."""
        if self.text is not None:
            return super().facts | {"vocabulary": "public"}
        given = self.categories or {}
        facts: dict[str, Fact] = {
            f"categories of {name}": "epsilon" if is_integer(given[name]) else "public"
            for name in sorted(given)
        }
        facts["categories of other columns" if given else "categories"] = "exact"
        if self.missing == "indicator":
            facts["which columns have gaps"] = "exact"
        if self.bounds:
            facts["ranges"] = "public"
        elif self.standardise != "none":
            facts[MOMENTS] = "exact" if self.standardise == "train" else "public"
        return super().facts | facts

    @property
    def notes(self) -> tuple[str, ...]:
        if self.text is not None:
            return (self._public,)
        categories = _categories_note(self.categories or {})
        if self.missing == "indicator":
            categories += " So is which columns have gaps."
        if self.standardise != "train" or self.bounds:
            return self._public, categories
        scaled = "the features and the target" if self.task == "regression" else "the features"
        scores = (
            f"The z-scores of {scaled} are by statistics of the training rows, which no epsilon "
            "covers."
        )
        return self._public, categories, scores

    def encoded(self, table: OwnTable, train: np.ndarray, test: np.ndarray) -> tuple[Split, float]:
        if self.text is not None:
            return self._texts(table.frame, train, test), 1.0
        columns, frame = self._plain(table)
        prepared = prepared_by(frame, columns, train)
        inputs = prepared(frame, TestRows("the test rows", self.test_rows or 0))
        for name, most in columns.selected.items():
            block = torch.zeros(len(frame), most + 1)
            block[:, 0] = torch.from_numpy(pd.factorize(frame[name], sort=True)[0])
            inputs = torch.cat([inputs, block], dim=1)
        target = frame[columns.target]
        if columns.task == "regression":
            targets = prepared.scaled_targets(target.to_numpy("float64"))
        else:
            targets = codes(target)
            warn_of_unseen(target, train, test)
        if self.test_rows is not None:  # drawn rows lack rare categories by chance
            for name in prepared.categories:
                warn_of_unseen(frame[name], train, test, "category")
        _, groups = groups_of(frame, columns, "the table")
        return Split(inputs, torch.tensor(targets), torch.tensor(groups)), prepared.target[1]

    def _texts(self, frame: pd.DataFrame, train: np.ndarray, test: np.ndarray) -> Split:
        columns = texts.columns_with_texts(vars(self), frame)
        texts.tokenizer_of(vars(self))  # refuses another one
        sentences = [
            frame[name].astype(str).tolist() for name in texts.text_columns(self.text, frame)
        ]
        _, groups = groups_of(frame, columns, "the table")
        coded = self._tokens.of(*sentences)
        if self.task == "language_model":
            coded = with_predicted(coded, self.padding or 0, self.pairs)
            targets = coded[:, 1].sum(1).float()
        else:
            targets = torch.tensor(codes(frame[columns.target]))
            warn_of_unseen(frame[columns.target], train, test)
        return Split(coded, targets, torch.tensor(groups), lengths=lengths_of(self))

    @property
    def _tokens(self) -> Tokens:
        sizes = self.vocabulary or 0, self.length or 0, self.padding or 0
        return Tokens(str(self.tokenizer), *sizes)

    def text_preparation(self) -> TextPreparation:
        """How texts become a model's inputs; UserError if the table has changed."""
        frame = self.read().frame
        target = texts.columns_with_texts(vars(self), frame).target
        is_class = self.task != "language_model"
        classes = distinct(frame[target], "the table") if is_class else []
        return self._tokens.preparation(self.pairs, classes)

    def preparation(self, seed: int) -> TablePreparation | None:
        """How the rows of a run with this seed are prepared, but for what the run measures with
        noise; None for texts. UserError if the table has changed."""
        if self.text is not None:
            return None
        table = self.read()
        columns, frame = self._plain(table)
        train, _ = self.order(seed, self._people(table.frame))
        return prepared_by(frame, columns, train)

    def candidates(self) -> Values:
        """All values of the columns of which a run selects some."""
        columns, frame = self._plain(self.read())
        return {name: tuple(all_distinct(frame[name])) for name in columns.selected}

    def _plain(self, table: OwnTable) -> tuple[Columns, pd.DataFrame]:
        columns = columns_of(vars(self), table.frame)
        return columns, columns.plain(table.frame)


def _categories_note(given: Mapping[str, Any]) -> str:
    if not given:
        return "The categories of each column are read from all rows, test included."
    selected = [name for name in given if is_integer(given[name])]
    public = [name for name in given if name not in selected]
    ways = {"public": public, "selected with noise, and epsilon pays for them": selected}
    of = [f"{', '.join(names)} are {way}" for way, names in ways.items() if names]
    others = "other columns are read from all rows, test included"
    return f"The categories of {'; those of '.join([*of, others])}."


@dataclass(frozen=True, kw_only=True)
class CsvFile(TableRows):
    """A file of rows. file: its path.

    test_file: another file with the test rows, and test_checksum: its checksum.
    """

    file: str | None = None
    test_file: str | None = None
    test_checksum: str | None = None

    needs = "dataset.file=FILE and dataset.target=COLUMN"

    def read(self) -> OwnTable:
        return csv_files.read(vars(self))


@dataclass(frozen=True, kw_only=True)
class HubTable(hub.HubRows, TableRows):
    """A table that the `datasets` library loads."""

    needs = "dataset.path=FOLDER, or NAME with dataset.revision=COMMIT, and dataset.target=COLUMN"
