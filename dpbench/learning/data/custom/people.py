"""The people that a column of the user's own data names, whose rows are protected together."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
from pandas.api.types import is_string_dtype

from dpbench.learning.data.custom.column_types import plain
from dpbench.learning.data.custom.columns import named, without
from dpbench.learning.data.custom.oddities import warn_of_nobody, warn_of_spellings
from dpbench.learning.data.custom.source import OwnTable
from dpbench.system.errors import UserError, warn
from dpbench.system.validate import integer

TARGET = "dpbench.data.derive.users.column"
"""What `users=column` builds."""


def are_of_column(users: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether settings of users are those of `users=column`."""
    return isinstance(users, Mapping) and users.get("_target_") == TARGET


def described(
    rows: OwnTable, users: Mapping[str, Any], marks: Sequence[str | float]
) -> tuple[dict[str, Any], int]:
    """What has to be public of people: their column and number, and the most rows of one that are
    trained on; UserError for a column that is unknown, or has rows without a value.

    The number is that of all people where test rows are drawn, and else of those who train. marks:
    what stands for no value.
    """
    frame = rows.frame
    name = named("users.column", users["column"], list(frame))
    people = people_of(frame, name, marks)
    if unknown := int((people < 0).sum()):
        row = rows.test.first(people < 0)
        others = f", one of {unknown:,} such rows" if unknown > 1 else ""
        raise UserError(
            f"users.column={name} has no value in {row}{others}: whose they are must be known, so "
            "complete or remove them."
        )
    train = people[: len(people) - rows.test.number]
    sizes = np.bincount(train)
    sizes = sizes[sizes > 0]
    if len(sizes) < 2:
        raise UserError(f"users.column={name} has one value in all rows: choose users=none.")
    if isinstance(frame[name].iloc[0], str):
        warn_of_spellings(f"users.column={name}", frame[name].unique(), "users")
    warn_of_nobody(plain(frame[name]))
    if both := len(np.intersect1d(train, people[len(train) :])):
        warn(
            f"{both:,} of the people of users.column={name} have rows in {rows.test.name} and in "
            "training: test metrics are of people whom the model knows."
        )
    most = int(sizes.max())
    if users.get("most") is not None:
        most = integer("users.most", users["most"])
        if left_out := int((sizes - sizes.clip(max=most)).sum()):
            warn(
                f"users.most={most} leaves out up to {left_out:,} of {len(train):,} rows, of "
                f"{(sizes > most).sum():,} of {len(sizes):,} people: what is learnt is biased "
                "towards people with fewer rows."
            )
    return {"user": name, "people": len(sizes)}, most


def people_of(frame: pd.DataFrame, column: str, marks: Sequence[str | float] = ()) -> np.ndarray:
    """The number of each row's person [n], in the order of their first rows; -1 for no value, or a
    blank text.

    marks: what stands for none.
    """
    owners = plain(without(frame[column], marks))
    if is_string_dtype(owners):
        owners = owners.mask(owners.str.strip() == "")
    return pd.factorize(owners)[0]
