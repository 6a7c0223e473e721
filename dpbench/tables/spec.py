"""What a table is made of: its methods, its columns and the paper's numbers it is held against."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from dpbench.config.buildable import check_settings
from dpbench.errors import UserError, nearest
from dpbench.metrics.paired import is_paired
from dpbench.metrics.registry import parse_name
from dpbench.metrics.significance import Better
from dpbench.tables.claims import Claim, claims_of
from dpbench.validate import integer, one_of, positive

STANDARD_ERROR = "standard error"
STANDARD_DEVIATION = "standard deviation"
PAPER_SCALE = "paper"


@dataclass(frozen=True)
class Column:
    """One column: a metric of the records, in the paper's unit and with the paper's digits.

    factor turns the metric into the column's unit (100 for percent); digits is None for three
    significant ones; better is which way is better. In YAML these three are those of
    `metrics.registry` unless others are given. printed is the column of the published numbers that
    it is held against, in YAML its own name unless another is given.
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
    """A table of a paper, as it is to be rebuilt.

    published: its numbers, a path under benchmarks/, or None; published_runs: how many runs the
    paper averaged; spread: what the paper's ± means, and so what ours means; baseline: the
    non-private method that privacy costs are measured from; groups: the two groups a and b, or
    none; conditions: the labels of what else is varied, of which "" varies nothing; scale_label:
    or in a few words what was made smaller; claims: what the paper says of the rows.
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
        one_of("baseline", self.baseline, self.methods)
        if not self.groups:
            raise UserError(f"groups must name the two groups whose privacy cost {self.name} has.")


def table_spec(plain: Mapping[str, Any]) -> TableSpec:
    """The table that a plain mapping (from YAML) describes.

    `columns` maps each column's name to its metric, to digits, factor and better where the registry
    has others or does not know it, and to `printed` where that is another name; `claims` is what
    `claims_of` reads.
    Raises UserError for keys that are missing, unknown or of a value that makes no sense.
    """
    _known_keys("the table", plain, {field.name for field in fields(TableSpec)})
    lists = {key: tuple(plain[key]) for key in ("methods", "seeds", "conditions", "notes")}
    groups = tuple(str(group) for group in plain["groups"])
    columns = tuple(_column(name, values) for name, values in plain["columns"].items())
    claims = claims_of(plain["claims"])
    made = {**lists, "groups": groups, "columns": columns, "claims": claims}
    return TableSpec(**{**plain, **made})


def _column(name: str, values: Mapping[str, Any]) -> Column:
    settings = {"printed": name, **_defaults(values), **values}
    _known_keys(f"column {name}", settings, {field.name for field in fields(Column)} - {"name"})
    check_settings(Column, {**settings, "name": name}, f"table.columns.{name}.")
    return Column(name=name, **settings)


def _defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the registry knows of a column's metric; nothing of one that it does not know."""
    metric = parse_name(str(values.get("metric"))).metric
    if metric is None or metric.better is None:
        return {}
    return {"factor": metric.factor, "digits": metric.digits, "better": metric.better}


def _known_keys(what: str, given: Mapping[str, Any], known: set[str]) -> None:
    for key in given:
        if key not in known:
            raise UserError(f"There is no {key!r} in {what}: {nearest(key, known)}")
    for key in sorted(known - given.keys()):
        raise UserError(f"{what[0].upper()}{what[1:]} does not say what its {key} is.")


def _distinct(what: str, values: Iterable[Any]) -> None:
    values = list(values)
    if not values or len(set(values)) < len(values):
        raise UserError(f"{what} must name at least one, and none twice: {values}.")
