"""A paper's claims about the rows of a table or figure, as declared in its YAML."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dpbench.system.errors import UserError
from dpbench.system.validate import known_keys, one_of, typed

Relation = Literal["better", "larger", "smaller"]
Statistic = Literal["mean", "min", "max", "first", "last", "change"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)

REQUIRED = ("statement", "source", "than", "in")
HINTS: dict[str, Any] = {
    **{"statement": str, "source": str, "than": list[str | float], "in": list[str]},
    **{"under": list[str] | None, "by": float, "over": str},
}


@dataclass(frozen=True)
class Claim:
    """Each of `rows` is better (larger, smaller) than each of `than`, in each of `quantities`.

    statement: the claim in a sentence; source: where the paper makes it. than: rows under the same
    condition, rows under another one by their full name (`batch_size 256, dpsgd`), or a number.
    quantities: columns of a table, series of a figure, the difference of two (`loss_b - loss_a`,
    where the first defines which way is better), or the mean of columns (`mean(loss_a, loss_b)`).
    under: labels of the conditions that the claim is about, None for all. by: the least difference,
    in the quantity's unit; below 0, how far a row may fall behind. over: the statistic of a series
    along a run.
    """

    name: str
    statement: str
    source: str
    relation: Relation
    rows: tuple[str, ...]
    than: tuple[str | float, ...]
    quantities: tuple[str, ...]
    under: tuple[str, ...] | None = None
    by: float = 0.0
    over: Statistic = "mean"


def claims_of(plain: Mapping[str, Mapping[str, Any]]) -> tuple[Claim, ...]:
    """The claims in a mapping from YAML, by name; UserError for unsuitable keys or values.

    Each has `statement`, `source`, one of RELATIONS with the rows, `than`, `in` with the
    quantities, and optionally `under` (labels of conditions), `by` and `over`.
    """
    typed("claims", plain, dict[str, Any])
    return tuple(_claim(name, values) for name, values in plain.items())


def _claim(name: str, values: Mapping[str, Any]) -> Claim:
    typed(f"claim {name}", values, dict[str, Any])
    relation = _relation(name, values)
    plain = {"under": None, "by": 0.0, "over": "mean", **values}
    for key, hint in {**HINTS, relation: list[str]}.items():
        typed(f"{key} in claim {name}", plain[key], hint)
    one_of(f"over in claim {name}", plain["over"], STATISTICS)
    for key in (relation, "than", "in"):
        if not plain[key] or len(set(plain[key])) < len(plain[key]):
            raise UserError(f"{key} in claim {name} must name at least one, and none twice.")
    return Claim(
        name=name,
        statement=plain["statement"],
        source=plain["source"],
        relation=relation,
        rows=tuple(plain[relation]),
        than=tuple(plain["than"]),
        quantities=tuple(plain["in"]),
        under=None if plain["under"] is None else tuple(plain["under"]),
        by=plain["by"],
        over=plain["over"],
    )


def _relation(name: str, values: Mapping[str, Any]) -> Relation:
    """The relation of a claim; UserError for several or none, and for unknown or missing keys."""
    known_keys(f"claim {name}", values, [*HINTS, *RELATIONS], REQUIRED)
    relations = [relation for relation in RELATIONS if relation in values]
    if len(relations) != 1:
        raise UserError(f"Claim {name} must have one of {', '.join(RELATIONS)}.")
    return relations[0]
