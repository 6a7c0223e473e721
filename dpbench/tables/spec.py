"""The specification of a table: its methods, its columns and the published numbers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from dpbench.config.buildable import check_settings
from dpbench.metrics.paired import is_paired
from dpbench.metrics.registry import Better, Margin, parse_name
from dpbench.system.errors import UserError
from dpbench.system.validate import integer, known_keys, one_of, positive, spelled_number
from dpbench.tables.claims.spec import Claim, claims_of

STANDARD_ERROR = "standard error"
STANDARD_DEVIATION = "standard deviation"
PAPER_SCALE = "paper"


@dataclass(frozen=True)
class Column:
    """One column: a metric of the records, in the paper's unit and with the paper's digits.

    factor: converts the metric to the column's unit (100 for percent). digits: decimals, or None
    for three significant digits. better: "higher" or "lower". In YAML these default to those of
    `metrics.registry`. printed: the column of the published numbers to compare with, in YAML by
    default the same name. margin: the largest difference that does not matter, in the column's
    unit, in YAML by default the metric's. judged: whether a verdict is given on its cells, as one
    of several columns that stand for the same printed number.
    """

    name: str
    metric: str
    factor: float
    digits: int | None
    better: Better
    printed: str
    margin: Margin
    judged: bool = True

    def __post_init__(self) -> None:
        one_of(f"better in column {self.name}", self.better, ("higher", "lower"))
        positive(f"factor in column {self.name}", self.factor)
        if self.digits is not None:
            integer(f"digits in column {self.name}", self.digits, least=0)


@dataclass(frozen=True)
class TableSpec:
    """The specification of a paper's table.

    published: the file of its numbers, a path under benchmarks/, or None; published_runs: how many
    runs the paper averaged; spread: the meaning of the paper's ±, and of ours; baseline: the
    non-private method that privacy costs are relative to; groups: the two groups a and b, or none;
    conditions: labels, "" for a table that varies only its methods; scale_label: "paper", or what
    differs from the paper's runs; claims: what the paper claims about the rows; at_edge: names of
    rows whose settings a search chose at an end of the range that it tried; arms: whether rows may
    differ in data set and model.
    """

    name: str
    title: str
    paper: str
    published: str | None
    published_runs: int
    baseline: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    groups: tuple[str, ...]
    conditions: tuple[str, ...]
    spread: Literal["standard error", "standard deviation"]
    scale_label: str
    columns: tuple[Column, ...]
    claims: tuple[Claim, ...]
    at_edge: tuple[str, ...]
    notes: tuple[str, ...]
    arms: bool

    def __post_init__(self) -> None:
        one_of("spread", self.spread, (STANDARD_ERROR, STANDARD_DEVIATION))
        integer("published_runs", self.published_runs)
        _distinct("methods", self.methods)
        _distinct("seeds", self.seeds)
        _distinct("conditions", self.conditions)
        _distinct("columns", [column.name for column in self.columns])
        if len(self.groups) not in (0, 2):
            raise UserError(f"groups must name two groups or none, not {list(self.groups)}.")
        if any(is_paired(column.metric) for column in self.columns):
            self._check_pairing()

    def _check_pairing(self) -> None:
        if self.baseline not in self.methods:
            raise UserError(
                f"table.methods must contain {self.baseline}, the baseline that the privacy cost "
                "of all others is measured against."
            )
        if not self.groups:
            raise UserError(f"groups must name the two groups whose privacy cost {self.name} has.")


def table_spec(plain: Mapping[str, Any]) -> TableSpec:
    """The table that a plain mapping (from YAML) describes.

    `columns` maps each column's name to its metric, to digits, factor and better unless they are
    the registry's, and to `printed` unless it is the column's name; for `claims` see `claims_of`.
    Raises UserError for keys that are missing or unknown, and for unsuitable values.
    """
    keys = [field.name for field in fields(TableSpec)]
    known_keys("the table", plain, keys, required=keys)
    names = ("methods", "seeds", "conditions", "at_edge", "notes")
    lists = {key: tuple(plain[key]) for key in names}
    groups = tuple(str(group) for group in plain["groups"])
    columns = tuple(_column(name, values) for name, values in plain["columns"].items())
    claims = claims_of(plain["claims"])
    return TableSpec(**{**plain, **lists, "groups": groups, "columns": columns, "claims": claims})


def metric_column(metric: str) -> Column:
    """A metric of the registry as a column of that name; UserError for one without a direction."""
    return _column(metric, {"metric": metric})


def _column(name: str, values: Mapping[str, Any]) -> Column:
    metric = parse_name(str(values.get("metric")))
    defaults: dict[str, Any] = {"printed": name, "judged": True}
    # Without a direction, as where the registry does not know it, a column must name its own.
    if metric.metric and metric.metric.better:
        defaults |= {key: getattr(metric.metric, key) for key in ("factor", "digits", "better")}
    settings = defaults | dict(values)
    margin = _margin(name, settings.pop("margin")) if "margin" in settings else metric.margin
    keys = [field.name for field in fields(Column) if field.name not in ("name", "margin")]
    known_keys(f"column {name}", settings, keys, required=keys)
    check_settings(Column, {**settings, "name": name, "margin": margin}, f"table.columns.{name}.")
    return Column(name=name, margin=margin, **settings)


def _margin(column: str, value: object) -> Margin:
    """The margin in YAML: a number in the column's unit, or a share of its value as `2%`."""
    text = str(value)
    number = spelled_number(text.removesuffix("%"))
    if not isinstance(number, float) or not 0 < number < math.inf:
        raise UserError(
            f"margin in column {column} must be a number above 0 or a share such as 2%, not {text}."
        )
    return Margin(relative=number / 100) if text.endswith("%") else Margin(number)


def _distinct(what: str, values: Iterable[Any]) -> None:
    values = list(values)
    if not values or len(set(values)) < len(values):
        raise UserError(f"{what} must name at least one, and none twice: {values}.")
