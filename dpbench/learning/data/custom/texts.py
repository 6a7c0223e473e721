"""Columns of text in the user's own tables, which a tokenizer turns into the inputs of a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpbench.learning.data.custom import checksums
from dpbench.learning.data.custom.columns import Columns, columns_of, named
from dpbench.learning.data.custom.source import TestRows
from dpbench.learning.data.custom.table import check_values, describe, group_names
from dpbench.learning.data.tokenizers import described, tokenizer_folder
from dpbench.system.errors import UserError
from dpbench.system.validate import integer

SETTINGS = (
    *("text", "tokenizer", "tokenizer_checksum", "vocabulary", "padding"),
    *("length", "lengths"),
)
"""The settings that a table has only if it has texts."""


def has_texts(settings: Mapping[str, Any]) -> bool:
    return settings.get("text") is not None


def text_columns(text: object, frame: pd.DataFrame) -> tuple[str, ...]:
    """The columns that `dataset.text` names; UserError for other than one or two."""
    given = text if isinstance(text, list | tuple) else [text]
    columns = tuple(named("dataset.text", name, list(frame)) for name in given)
    if len(columns) not in (1, 2) or len({*columns}) < len(columns):
        raise UserError(
            f"dataset.text=[{','.join(columns)}] must name one column, or two different ones."
        )
    return columns


def with_lengths(frame: pd.DataFrame, texts: Sequence[str]) -> pd.DataFrame:
    """The table with the number of characters in place of each text, missing for a blank one."""
    sizes = {name: frame[name].astype("string").str.strip().str.len() for name in texts}
    numbers = {n: size.fillna(0).astype("float64").replace(0, np.nan) for n, size in sizes.items()}
    return frame.assign(**numbers)


def columns_with_texts(settings: Mapping[str, Any], frame: pd.DataFrame) -> Columns:
    """The columns, of which those of text alone are features; UserError for a regression.

    The target of a language model is a text.
    """
    columns = columns_of(settings, frame)
    if columns.task == "regression":
        raise UserError("dataset.text is for classification: set dataset.task=classification.")
    texts = text_columns(settings["text"], frame)
    needed = columns.group if columns.task == "language_model" else columns.needed
    if used := {*texts} & {*needed}:
        raise UserError(f"dataset.text={min(used)} is the target or a group as well.")
    drop = tuple(name for name in frame if name not in (*texts, columns.target))
    return Columns(columns.target, columns.group, (), drop, columns.task, user=columns.user)


def describe_texts(
    settings: Mapping[str, Any], frame: pd.DataFrame, name: str, test: TestRows
) -> dict[str, Any]:
    """What has to be public of a table with texts, and of its tokenizer."""
    columns, texts = columns_with_texts(settings, frame), text_columns(settings["text"], frame)
    lengths = with_lengths(frame, texts)
    _check_none_blank(lengths[[*texts]].isna(), name, test)
    shown, least = columns.plain(lengths), 1
    if columns.task == "language_model":
        least = 2  # a first token, and one to predict
        check_values(shown, columns, name, test)
        groups = group_names(shown, columns, name, test)
        found = {"rows": len(frame), "classes": 1, "groups": groups}
    else:
        found = describe(shown, columns, name, test)
    length = integer("dataset.length", settings["length"], least, most=100_000)
    return found | {"features": 2 * length} | tokenizer_of(settings)


def _check_none_blank(blank: pd.DataFrame, name: str, test: TestRows) -> None:
    for column in blank:
        if number := int(blank[column].sum()):
            row = test.first(blank[column])
            others = f", one of {number:,} such rows" if number > 1 else ""
            raise UserError(
                f"{name} has no text in column {column} of {row}{others}: complete the row, or "
                "remove it."
            )


def tokenizer_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The checksum of a tokenizer's folder, its number of tokens, and that of its padding token."""
    if settings["tokenizer"] is None:
        raise UserError(
            "dataset.text needs dataset.tokenizer=FOLDER, with a tokenizer that save_pretrained of "
            "transformers has written, or the name of an installed package that has one."
        )
    place = str(settings["tokenizer"])
    folder = tokenizer_folder(place)
    if folder is None:
        folder = checksums.source_path("dataset.tokenizer", place, "folder")
    actual, expected = checksums.checksum(folder), settings.get("tokenizer_checksum")
    if expected not in (None, actual):
        raise UserError(
            f"dataset.tokenizer={place} has the checksum {actual}, but dataset.tokenizer_checksum "
            f"is {expected}: give the original tokenizer, or leave out the checksum."
        )
    return {"tokenizer_checksum": actual, **described(folder)._asdict()}
