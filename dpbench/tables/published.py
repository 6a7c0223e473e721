"""The numbers that a paper printed, digit for digit."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import UserError
from dpbench.tables.spec import TableSpec


@dataclass(frozen=True)
class Published:
    """A printed number and the number after its ±, as text, so that 80.0 stays 80.0."""

    value: str
    spread: str | None

    @property
    def rounding(self) -> float:
        """The most that rounding can have moved the value: half a unit of its last digit."""
        decimals = len(self.value.partition(".")[2])
        return 0.5 * 10**-decimals


PublishedTable = Mapping[tuple[str, str], Published]


def read_published(path: Path) -> dict[tuple[str, str], Published]:
    """The printed numbers by (method, column) from a tidy CSV; lines that begin with # are prose.

    Raises UserError where a cell is there twice or is not a number.
    """
    table: dict[tuple[str, str], Published] = {}
    for line in _lines(path, ["method", "column", "value", "spread"]):
        key = (line["method"], line["column"])
        if key in table:
            raise UserError(f"{path.name} has two numbers for {' '.join(key)}.")
        _number(path, line["value"])
        _number(path, line["spread"] or "0")
        table[key] = Published(line["value"], line["spread"] or None)
    return table


def read_epsilon(path: Path, dataset: str) -> str:
    """The epsilon that the paper printed for a data set; UserError if it printed none."""
    printed = {line["dataset"]: line["epsilon"] for line in _lines(path, ["dataset", "epsilon"])}
    if dataset not in printed:
        raise UserError(f"{path.name} has no epsilon for {dataset}, only {', '.join(printed)}.")
    return printed[dataset]


def check_covered(spec: TableSpec, published: PublishedTable) -> None:
    """Raise UserError if the paper printed a method or a column that the table leaves out."""
    columns = {column.name for column in spec.columns}
    for method, column in published:
        if method not in spec.methods or column not in columns:
            raise UserError(f"{spec.name} has no cell for the published {column} of {method}.")


def _lines(path: Path, needed: list[str]) -> list[dict[str, str]]:
    text = path.read_text(encoding="utf-8").splitlines()
    reader = csv.DictReader(line for line in text if not line.startswith("#"))
    if not set(needed) <= set(reader.fieldnames or ()):
        raise UserError(f"{path.name} must have the columns {', '.join(needed)}.")
    return list(reader)


def _number(path: Path, text: str) -> None:
    try:
        float(text)
    except ValueError:
        raise UserError(f"{path.name}: {text!r} is not a number.") from None
