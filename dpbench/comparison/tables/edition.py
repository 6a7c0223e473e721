"""An edition of a table: its file, with columns and claims, as its runs are judged at one scale."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from msgspec import UNSET, structs

from dpbench.comparison.compare.side import Tuning
from dpbench.comparison.tables.conditions import Condition, row_name
from dpbench.learning.metrics.derived import is_paired
from dpbench.learning.metrics.metric import Better, Margin
from dpbench.learning.metrics.registry import parse_name
from dpbench.runs.config.table_file import ClaimEntry, ColumnEntry, TableFile
from dpbench.system.errors import UserError
from dpbench.system.validate import known_keys, one_of, spelled_number


@dataclass(frozen=True)
class TableColumn:
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


def columns_of(entries: Mapping[str, ColumnEntry]) -> tuple[TableColumn, ...]:
    """The columns by name, in order; UserError for what neither they nor the registry say."""
    return tuple(_column(name, entry) for name, entry in entries.items())


def metric_column(metric: str) -> TableColumn:
    """A metric of the registry as a column of that name; UserError for one without a direction."""
    return _column(metric, ColumnEntry(metric=metric))


def _column(name: str, entry: ColumnEntry) -> TableColumn:
    found = parse_name(entry.metric)
    known: dict[str, Any] = {"margin": found.margin}
    # Without a direction, as where the registry does not know it, a column must name its own.
    if found.metric.better:
        known |= {key: getattr(found.metric, key) for key in ("factor", "digits", "better")}
    known |= {key: value for key, value in structs.asdict(entry).items() if value is not UNSET}
    known_keys(f"column {name}", known, known, required=("factor", "digits", "better"))
    if entry.margin is not UNSET:
        known["margin"] = _margin(name, entry.margin)
    return TableColumn(name, **{**known, "printed": entry.printed or name})


def _margin(column: str, value: object) -> Margin:
    """The margin in YAML: a number in the column's unit, or a share of its value as `2%`."""
    text = str(value)
    number = spelled_number(text.removesuffix("%"))
    if not isinstance(number, float) or not 0 < number < math.inf:
        raise UserError(
            f"margin in column {column} must be a number above 0 or a share such as 2%, not {text}."
        )
    return Margin(relative=number / 100) if text.endswith("%") else Margin(number)


Relation = Literal["better", "larger", "smaller"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)


class RowClaim(ClaimEntry, frozen=True, kw_only=True):
    """Each of `rows` is better (larger, smaller) than each of `than`, in each of `quantities`.

    As in the table's file, with what that leaves to the table; statement: with the regime; labels:
    of the conditions that the claim is about, None for all.
    """

    name: str
    labels: tuple[str, ...] | None

    @property
    def relation(self) -> Relation:
        return next(relation for relation in RELATIONS if getattr(self, relation))

    @property
    def rows(self) -> list[str]:
        return getattr(self, self.relation)


OURS = "ours"
"""The source of a claim that no paper makes, as it stands or before `, after PAPER`."""


def claims_of(table: TableFile, conditions: Sequence[Condition]) -> tuple[RowClaim, ...]:
    """The claims of a table, in order; UserError for one that compares nothing."""
    return tuple(_claim(n, entry, table, conditions) for n, entry in (table.claims or {}).items())


def _claim(
    name: str, entry: ClaimEntry, table: TableFile, conditions: Sequence[Condition]
) -> RowClaim:
    given = {relation: rows for relation in RELATIONS if (rows := getattr(entry, relation))}
    if len(given) != 1:
        raise UserError(f"Claim {name} must have one of {', '.join(RELATIONS)}, with rows.")
    ((relation, rows),) = given.items()
    for key, values in {relation: rows, "than": entry.than, "in": entry.quantities}.items():
        if not values or len(set(values)) < len(values):
            raise UserError(f"{key} in claim {name} must name at least one, and none twice.")
    whole = structs.asdict(entry) | {
        "name": name,
        "labels": None if entry.under is None else _labels(name, entry.under, conditions),
        "statement": f"{entry.regime}: {entry.statement}" if entry.regime else entry.statement,
        "method": entry.method or (rows[0] if len(rows) == 1 else ""),
        "regime": entry.regime or table.regime,
        "read": entry.read or table.read,
    }
    return RowClaim(**whole)


def _labels(
    name: str, under: Mapping[str, Sequence[object]], conditions: Sequence[Condition]
) -> tuple[str, ...]:
    for key in under:
        one_of(f"a condition under in claim {name}", key, conditions[0].keys)
    return tuple(
        c.label
        for c in conditions
        if all(dict(c.values)[key] in allowed for key, allowed in under.items())
    )


STANDARD_ERROR = "standard error"
STANDARD_DEVIATION = "standard deviation"
PAPER_SCALE = "paper"


@dataclass(frozen=True)
class Edition:
    """A table's file at a scale.

    title: with what differs from the paper; conditions: labels, "" for a table that varies only its
    methods; scale_label: "paper", or what differs from the paper's runs; tuning: how the
    settings of rows were chosen, by name.
    """

    file: TableFile
    name: str
    title: str
    conditions: tuple[str, ...]
    scale_label: str
    claims: tuple[RowClaim, ...]
    tuning: Mapping[str, Tuning]

    def __post_init__(self) -> None:
        needed = {"spread": self.file.spread, "published_runs": self.file.published_runs}
        given = {key: value for key, value in needed.items() if value is not None}
        known_keys("the table", given, needed, required=needed)
        names = [column.name for column in self.columns]
        named: dict[str, Sequence[object]] = {
            "methods": self.file.methods,
            "seeds": self.file.seeds,
            "conditions": self.conditions,
            "columns": names,
        }
        for what, values in named.items():
            if not values or len({*values}) < len(values):
                raise UserError(f"{what} must name at least one, and none twice: {[*values]}.")
        if len(self.file.groups) not in (0, 2):
            raise UserError(f"groups must name two groups or none, not {self.file.groups}.")
        if any(is_paired(column.metric) for column in self.columns):
            self._check_pairing()

    @cached_property
    def columns(self) -> tuple[TableColumn, ...]:
        return columns_of(self.file.columns)

    @property
    def second_search(self) -> dict[str, str]:
        """By method, the row that is it after another search, if the table has that row."""
        return {k: v for k, v in self.file.again.items() if v in self.file.methods}

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(map(str, self.file.groups))

    @property
    def rows(self) -> list[str]:
        return [row_name(c, method) for c in self.conditions for method in self.file.methods]

    @property
    def published_runs(self) -> int:
        """How many runs the paper averaged."""
        return self.file.published_runs or 1

    def _check_pairing(self) -> None:
        baseline = self.file.baseline
        if baseline not in self.file.methods:
            raise UserError(
                f"table.methods must contain {baseline or 'table.baseline'}, the baseline that the "
                "privacy cost of all others is measured against."
            )
        if not self.file.groups:
            raise UserError(f"groups must name the two groups whose privacy cost {self.name} has.")
