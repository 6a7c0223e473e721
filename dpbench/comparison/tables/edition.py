"""An edition of a table: its file at a scale, with the columns and claims to judge runs by."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from msgspec import UNSET, structs

from dpbench.comparison.compare.side import Tuning
from dpbench.comparison.tables.conditions import Condition, row_name
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.learning.metrics.derived import is_paired
from dpbench.learning.metrics.metric import Better, Margin
from dpbench.learning.metrics.registry import parse_name
from dpbench.runs.config.settings import key_of
from dpbench.runs.config.table_file import ClaimEntry, ColumnEntry, Scale, TableFile
from dpbench.system.errors import UserError
from dpbench.system.validate import known_keys, one_of, spelled_number


@dataclass(frozen=True)
class TableColumn:
    """One column: a metric of the records, in the paper's unit and with the paper's digits; keys as
    in a table's file, digits None for three significant ones."""

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


SELECTING = ("table.methods", "table.seeds")
"""Settings of a table that select some of its runs without changing them."""


@dataclass(frozen=True)
class Edition:
    """A table at a scale, with the user's overrides: what its pages say of it.

    scale_name: "paper", or that of a smaller scale; changes: the overrides by which runs differ
    from the scale's; other_data: the user's data set in place of the table's only one, or "";
    flags: the folders with options of the user's own, as `as_flags` has them.
    """

    name: str
    table: TableFile
    conditions: tuple[Condition, ...]
    scale_name: str
    scale: Scale
    overrides: tuple[str, ...]
    changes: tuple[str, ...]
    other_data: str
    flags: tuple[str, ...]

    @property
    def title(self) -> str:
        """The table's title, with the description of a smaller scale and the user's changes.

        The title of a figure says if there is only one seed, since curves then have no spread.
        """
        title = self.table.title
        if self.other_data:
            title += f", here with dataset={self.other_data}"
        if self.table.figure and len(self.table.seeds) == 1:
            title += ", one seed"
        if self.scale_name == PAPER_SCALE:
            return title
        changed = "".join(f", then {change}" for change in self.changes)
        return f"{title}, at scale {self.scale_name}: {self.scale.description}{changed}"

    @property
    def scale_label(self) -> str:
        """The scale and the changes in a few words: "paper" for the paper's own runs."""
        if self.scale_name == PAPER_SCALE:
            return ", ".join(self.changes) or PAPER_SCALE
        return ", ".join([self.scale_name, *self.changes])

    @property
    def own_scale(self) -> str:
        """The scale, on a page, of runs in our own set-up, with what the user changed."""
        changed = "" if self.scale_label == PAPER_SCALE else f", changed: {self.scale_label}"
        return f"Our own runs{changed}"

    @property
    def stem(self) -> str:
        """The name of its files, with a suffix for changed runs and for a part of the table."""
        stem = self.name
        if self.scale_name != PAPER_SCALE:
            stem += f"-{self.scale_name}"
        if self.changes:
            return f"{stem}-changed"
        return f"{stem}-part" if self.selection else stem

    @property
    def selection(self) -> tuple[str, ...]:
        """The overrides that select some of the runs without changing them."""
        selecting = {*SELECTING, *self.conditions[0].keys}
        kept = (o for o in self.overrides if o not in self.changes)
        return tuple(o for o in kept if key_of(o) in selecting)

    @property
    def part(self) -> tuple[str, ...]:
        """A sentence on which runs were selected; none for the whole table."""
        return (f"In part: {' '.join(self.selection)}.",) if self.selection else ()

    @property
    def command(self) -> str:
        """The command that makes its files, without settings of execution, and with the checksum
        of data of the user's own in place of their path."""
        scale = [] if self.scale_name == PAPER_SCALE else [f"scale={self.scale_name}"]
        words = [*scale, *self.changes, *self.selection, *self.flags]
        return shlex.join(["dpbench", "reproduce", self.name, *words])

    def page(self, *blocks: PageBlock) -> Page:
        return Page(self.title, blocks, self.command)

    @property
    def image(self) -> str:
        return f"![{self.title}]({self.stem}.png)"

    @property
    def labels(self) -> list[str]:
        """Of the conditions; "" for a table that varies only its methods."""
        return [condition.label for condition in self.conditions]

    @property
    def rows(self) -> list[str]:
        return [row_name(label, method) for label in self.labels for method in self.table.methods]

    @cached_property
    def columns(self) -> tuple[TableColumn, ...]:
        return columns_of(self.table.columns)

    @cached_property
    def claims(self) -> tuple[RowClaim, ...]:
        return claims_of(self.table, self.conditions)

    @cached_property
    def tuning(self) -> dict[str, Tuning]:
        """How the settings of rows that a search chose were chosen, by name."""
        return {}

    @property
    def second_search(self) -> dict[str, str]:
        """By method, the row that is it after another search, if the table has that row."""
        return {k: v for k, v in self.table.again.items() if v in self.table.methods}

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(map(str, self.table.groups))

    @property
    def published_runs(self) -> int:
        """How many runs the paper averaged."""
        return self.table.published_runs or 1

    def check(self) -> None:
        """UserError for a table of cells whose file lacks something or contradicts itself."""
        needed: dict[str, object] = {"spread": self.table.spread}
        if self.table.published is not None:
            needed["published_runs"] = self.table.published_runs
        given = {key: value for key, value in needed.items() if value is not None}
        known_keys("the table", given, needed, required=needed)
        named: dict[str, Sequence[object]] = {
            "methods": self.table.methods,
            "seeds": self.table.seeds,
            "conditions": self.labels,
            "columns": [column.name for column in self.columns],
        }
        for what, values in named.items():
            if not values or len({*values}) < len(values):
                raise UserError(f"{what} must name at least one, and none twice: {[*values]}.")
        if len(self.groups) not in (0, 2):
            raise UserError(f"groups must name two groups or none, not {self.table.groups}.")
        if any(is_paired(column.metric) for column in self.columns):
            self._check_pairing()
        _ = self.claims, self.tuning  # which refuse what is about no row or setting

    def _check_pairing(self) -> None:
        baseline = self.table.baseline
        if baseline not in self.table.methods:
            raise UserError(
                f"table.methods must contain {baseline or 'table.baseline'}, the baseline that the "
                "privacy cost of all others is measured against."
            )
        if not self.groups:
            raise UserError(f"groups must name the two groups whose privacy cost {self.name} has.")
