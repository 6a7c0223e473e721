"""Reads the numbers that a paper printed, digit for digit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpbench.comparison.tables.conditions import Condition, row_name
from dpbench.comparison.tables.edition import Edition
from dpbench.runs.records.reading import required, text_of
from dpbench.system.csv_lines import csv_lines
from dpbench.system.errors import UserError
from dpbench.system.validate import spelled_number


@dataclass(frozen=True)
class Published:
    """A printed number and the number after its ±, as text, so that 80.0 stays 80.0."""

    value: str
    spread: str | None

    @property
    def text(self) -> str:
        return self.value if self.spread is None else f"{self.value} ± {self.spread}"

    @property
    def rounding(self) -> float:
        """The largest rounding error: half a unit of the last digit."""
        decimals = len(self.value.partition(".")[2])
        return 0.5 * 10**-decimals


PublishedTable = Mapping[tuple[str, str], Published]


def read_published(path: Path, varied: Sequence[str] = ()) -> dict[tuple[str, str], Published]:
    """The printed numbers by (row name, column) from a tidy CSV, with comments after #; UserError
    for duplicate cells and cells that are not numbers. varied: the keys that the table's conditions
    vary, for each of which there is a column, named by the last part of the key."""
    table: dict[tuple[str, str], Published] = {}
    names = {key: key.rpartition(".")[2] for key in varied}
    for line in _lines(path, [*names.values(), "method", "column", "value", "spread"]):
        condition = Condition(
            tuple((key, spelled_number(line[name])) for key, name in names.items())
        )
        key = (row_name(condition.label, line["method"]), line["column"])
        if key in table:
            raise UserError(f"{path.name} has two numbers for {' '.join(key)}.")
        for text in (line["value"], line["spread"] or "0"):
            if not isinstance(spelled_number(text), float):
                raise UserError(f"{path.name}: {text!r} is not a number.")
        table[key] = Published(line["value"], line["spread"] or None)
    return table


def read_epsilon(path: Path, dataset: str) -> str:
    """The epsilon that the paper printed for a data set; UserError if it printed none."""
    printed = {line["dataset"]: line["epsilon"] for line in _lines(path, ["dataset", "epsilon"])}
    if dataset not in printed:
        raise UserError(f"{path.name} has no epsilon for {dataset}, only {', '.join(printed)}.")
    return printed[dataset]


def check_covered(edition: Edition, published: PublishedTable) -> None:
    """Raise UserError if the paper printed a row or a column that the table leaves out."""
    columns = {column.printed for column in edition.columns}
    for row, column in published:
        if row not in edition.rows or column not in columns:
            raise UserError(f"{edition.name} has no cell for the published {column} of {row}.")


def without_comments(path: Path) -> list[str]:
    """The lines of a file that do not begin with #; UserError for an unreadable one."""
    lines = required(text_of(path), path).splitlines()
    return [line for line in lines if not line.startswith("#")]


def _lines(path: Path, columns: list[str]) -> list[dict[str, str]]:
    return csv_lines("\n".join(without_comments(path)), path.name, columns)
