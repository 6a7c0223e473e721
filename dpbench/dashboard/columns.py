"""Stores rows by column, which halves the JSON, as most values repeat."""

from collections.abc import Mapping, Sequence
from typing import Any


def by_column(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list]]:
    """The columns of rows that all have the same keys.

    A column has `all` its values or, if they repeat, the `distinct` ones and where each row's is
    `at` among them.
    """
    return {name: _column([row[name] for row in rows]) for name in rows[0]} if rows else {}


def _column(values: list) -> dict[str, list]:
    places: dict[Any, int] = {}
    at: list[int] = []
    for value in values:
        try:
            at.append(places.setdefault(value, len(places)))
        except TypeError:  # a list
            return {"all": values}
        if 2 * len(places) >= len(values):
            return {"all": values}
    return {"distinct": [*places], "at": at}
