"""The columns of a table, with the units, digits, directions and margins of their metrics."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, structs

from dpbench.learning.metrics.metric import Better, Margin
from dpbench.learning.metrics.registry import parse_name
from dpbench.runs.config.table_file import ColumnEntry
from dpbench.system.errors import UserError
from dpbench.system.validate import known_keys, spelled_number


@dataclass(frozen=True)
class Column:
    """One column: a metric of the records, in the paper's unit and with the paper's digits.

    factor: converts the metric to the column's unit (100 for percent). digits: decimals, or None
    for three significant digits. printed: the column of the published numbers to compare with.
    margin: the largest difference that does not matter, in the column's unit. judged: whether a
    verdict is given on its cells, as one of several columns that stand for the same printed number.
    """

    name: str
    metric: str
    factor: float
    digits: int | None
    better: Better
    printed: str
    margin: Margin
    judged: bool = True


def columns_of(entries: Mapping[str, ColumnEntry]) -> tuple[Column, ...]:
    """The columns by name, in order; UserError for what neither they nor the registry say."""
    return tuple(_column(name, entry) for name, entry in entries.items())


def metric_column(metric: str) -> Column:
    """A metric of the registry as a column of that name; UserError for one without a direction."""
    return _column(metric, ColumnEntry(metric=metric))


def _column(name: str, entry: ColumnEntry) -> Column:
    found = parse_name(entry.metric)
    known: dict[str, Any] = {"margin": found.margin}
    # Without a direction, as where the registry does not know it, a column must name its own.
    if found.metric.better:
        known |= {key: getattr(found.metric, key) for key in ("factor", "digits", "better")}
    known |= {key: value for key, value in structs.asdict(entry).items() if value is not UNSET}
    known_keys(f"column {name}", known, known, required=("factor", "digits", "better"))
    if entry.margin is not UNSET:
        known["margin"] = _margin(name, entry.margin)
    return Column(name, **{**known, "printed": entry.printed or name})


def _margin(column: str, value: object) -> Margin:
    """The margin in YAML: a number in the column's unit, or a share of its value as `2%`."""
    text = str(value)
    number = spelled_number(text.removesuffix("%"))
    if not isinstance(number, float) or not 0 < number < math.inf:
        raise UserError(
            f"margin in column {column} must be a number above 0 or a share such as 2%, not {text}."
        )
    return Margin(relative=number / 100) if text.endswith("%") else Margin(number)
