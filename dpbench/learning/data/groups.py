"""Groups of examples by an attribute, or by the intersections of several: women who are Black."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpbench.system.errors import UserError
from dpbench.system.validate import one_of, typed

BETWEEN = " & "
"""Between the attributes of an intersection, in its name."""

FEWEST = 100
"""The fewest rows of an intersection of a user's own table that is a group by itself: with the
usual share of test rows, 20 to measure its accuracy on."""

OTHERS = "others"
"""The group of all smaller intersections."""

MOST = 2
"""The most attributes of a published table to intersect: of three, some have six examples."""

Attributes = Mapping[str, Mapping[Any, str]]
"""The attributes of a published table: for each, the name of its group by value of its column."""


def attributes_of(group: str | Sequence[str], known: Attributes) -> tuple[str, ...]:
    """The attributes that `dataset.group` names; UserError unless it is one, or two others."""
    typed("dataset.group", group, str | list[str])
    names = (group,) if isinstance(group, str) else tuple(group)
    for name in names:
        one_of("dataset.group", name, known)
    if not 0 < len({*names}) == len(names) <= MOST:
        raise UserError(
            f"dataset.group=[{','.join(names)}] must name one or {MOST} of {', '.join(known)}, "
            "each once: intersections of more have hardly any examples."
        )
    return names


def group_names(group: str | Sequence[str], known: Attributes) -> tuple[str, ...]:
    """The names of all intersections, the last attribute varying fastest."""
    named = (_named(known[name]) for name in attributes_of(group, known))
    return tuple(map(BETWEEN.join, itertools.product(*named)))


def group_numbers(table: pd.DataFrame, group: str | Sequence[str], known: Attributes) -> np.ndarray:
    """The number of each row's group [n] int64, in the order of `group_names`."""
    names = attributes_of(group, known)
    named = [_named(known[name]) for name in names]
    codes = [
        table[name].map({value: groups.index(known[name][value]) for value in known[name]})
        for name, groups in zip(names, named, strict=True)
    ]
    return np.ravel_multi_index(codes, [*map(len, named)]).astype("int64")


def _named(groups: Mapping[Any, str]) -> list[str]:
    """The names of an attribute's groups, each once: several values may be of one group."""
    return [*dict.fromkeys(groups.values())]


def intersections(
    values: Sequence[Sequence], codes: Sequence[np.ndarray]
) -> tuple[list[str], np.ndarray]:
    """The names of the groups of a user's own table, and the number of each row's group [n] int64.

    values: the distinct ones of each column; codes: the place of each row's among them [n].
    Intersections of several columns with fewer than FEWEST rows are one group, the last.
    """
    found, rows, sizes = np.unique(
        np.stack(codes, axis=1), axis=0, return_inverse=True, return_counts=True
    )
    large = (sizes >= FEWEST) | (len(codes) == 1)
    names = [
        BETWEEN.join(str(of[place]) for of, place in zip(values, places, strict=True))
        for places in found[large]
    ]
    numbers = np.where(large, large.cumsum() - 1, len(names))
    return names + [OTHERS] * (not large.all()), numbers[rows].astype("int64")
