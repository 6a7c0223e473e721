"""The specification of a table: its methods, its columns and the published numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from dpbench.config.buildable import check_settings
from dpbench.metrics.paired import is_paired
from dpbench.metrics.registry import Better, parse_name
from dpbench.system.errors import UserError
from dpbench.system.validate import integer, known_keys, one_of, positive
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
    default the same name.
    """

    name: str
    metric: str
    factor: float
    digits: int | None
    better: Better
    printed: str

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
    differs from the paper's runs; claims: what the paper claims about the rows; arms: whether rows
    may differ in data set and model.
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
    lists = {key: tuple(plain[key]) for key in ("methods", "seeds", "conditions", "notes")}
    groups = tuple(str(group) for group in plain["groups"])
    columns = tuple(_column(name, values) for name, values in plain["columns"].items())
    claims = claims_of(plain["claims"])
    return TableSpec(**{**plain, **lists, "groups": groups, "columns": columns, "claims": claims})


def _column(name: str, values: Mapping[str, Any]) -> Column:
    settings = {"printed": name, **_defaults(values), **values}
    keys = [field.name for field in fields(Column) if field.name != "name"]
    known_keys(f"column {name}", settings, keys, required=keys)
    check_settings(Column, {**settings, "name": name}, f"table.columns.{name}.")
    return Column(name=name, **settings)


def _defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Factor, digits and better by the registry; nothing for a metric that it does not know."""
    metric = parse_name(str(values.get("metric"))).metric
    if metric is None or metric.better is None:
        return {}
    return {"factor": metric.factor, "digits": metric.digits, "better": metric.better}


def _distinct(what: str, values: Iterable[Any]) -> None:
    values = list(values)
    if not values or len(set(values)) < len(values):
        raise UserError(f"{what} must name at least one, and none twice: {values}.")
