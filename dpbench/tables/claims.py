"""What a paper claims of its rows, as the YAML of a table or figure names it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dpbench.errors import UserError, nearest
from dpbench.validate import one_of, typed

Relation = Literal["better", "larger", "smaller"]
Statistic = Literal["mean", "min", "max"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)

NEEDED = ("says", "source", "than", "in")
HINTS: dict[str, Any] = {
    **{"says": str, "source": str, "than": list[str | float], "in": list[str]},
    **{"under": list[str] | None, "by": float, "over": str},
}


@dataclass(frozen=True)
class Claim:
    """That each of `rows` is better (larger, smaller) than each of `than`, in each of `quantities`.

    says: the claim in a sentence; source: where the paper makes it. than: rows, or a number.
    quantities: columns of a table, series of a figure, or the difference of two (`loss_b - loss_a`,
    where better is what is better in the first). under: labels of the conditions that the claim is
    about, None for all. by: the least difference that it asks for, in the quantity's unit; below 0,
    how far a row may fall behind. over: which of a series' values along a run counts.
    """

    name: str
    says: str
    source: str
    relation: Relation
    rows: tuple[str, ...]
    than: tuple[str | float, ...]
    quantities: tuple[str, ...]
    under: tuple[str, ...] | None = None
    by: float = 0.0
    over: Statistic = "mean"


def claims_of(plain: Mapping[str, Mapping[str, Any]]) -> tuple[Claim, ...]:
    """The claims that a mapping from YAML names; UserError for keys or values that make no sense.

    Of each: `says`, `source`, one of RELATIONS with the rows, `than`, `in` with the quantities,
    and, where they are not as usual, `under` (labels of conditions), `by` and `over`.
    """
    typed("claims", plain, dict[str, Any])
    return tuple(_claim(name, values) for name, values in plain.items())


def _claim(name: str, values: Mapping[str, Any]) -> Claim:
    typed(f"claim {name}", values, dict[str, Any])
    relation = _relation(name, values)
    said = {"under": None, "by": 0.0, "over": "mean", **values}
    for key, hint in {**HINTS, relation: list[str]}.items():
        typed(f"{key} in claim {name}", said[key], hint)
    one_of(f"over in claim {name}", said["over"], STATISTICS)
    for key in (relation, "than", "in"):
        if not said[key] or len(set(said[key])) < len(said[key]):
            raise UserError(f"{key} in claim {name} must name at least one, and none twice.")
    return Claim(
        name=name,
        says=said["says"],
        source=said["source"],
        relation=relation,
        rows=tuple(said[relation]),
        than=tuple(said["than"]),
        quantities=tuple(said["in"]),
        under=None if said["under"] is None else tuple(said["under"]),
        by=said["by"],
        over=said["over"],
    )


def _relation(name: str, values: Mapping[str, Any]) -> Relation:
    """The one that a claim has; UserError for several, none, or keys that no claim has."""
    for key in values:
        if key not in (*HINTS, *RELATIONS):
            raise UserError(
                f"There is no {key!r} in claim {name}: {nearest(key, [*HINTS, *RELATIONS])}"
            )
    for key in NEEDED:
        if key not in values:
            raise UserError(f"Claim {name} does not say what its {key} is.")
    given = [relation for relation in RELATIONS if relation in values]
    if len(given) != 1:
        raise UserError(f"Claim {name} must have one of {', '.join(RELATIONS)}.")
    return given[0]
