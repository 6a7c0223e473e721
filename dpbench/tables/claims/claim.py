"""A paper's claims about the rows of a table or figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from dpbench.config.table_file import ClaimEntry, Statistic
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of
from dpbench.tables.conditions import Condition

Relation = Literal["better", "larger", "smaller"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)


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


def claims_of(
    entries: Mapping[str, ClaimEntry], conditions: Sequence[Condition]
) -> tuple[Claim, ...]:
    """The claims by name, in order; UserError for one that compares nothing."""
    return tuple(_claim(name, entry, conditions) for name, entry in entries.items())


def _claim(name: str, entry: ClaimEntry, conditions: Sequence[Condition]) -> Claim:
    given = {relation: rows for relation in RELATIONS if (rows := getattr(entry, relation))}
    if len(given) != 1:
        raise UserError(f"Claim {name} must have one of {', '.join(RELATIONS)}, with rows.")
    ((relation, rows),) = given.items()
    for key, values in {relation: rows, "than": entry.than, "in": entry.quantities}.items():
        if not values or len(set(values)) < len(values):
            raise UserError(f"{key} in claim {name} must name at least one, and none twice.")
    return Claim(
        name=name,
        statement=entry.statement,
        source=entry.source,
        relation=relation,
        rows=tuple(rows),
        than=tuple(entry.than),
        quantities=tuple(entry.quantities),
        under=None if entry.under is None else _labels(name, entry.under, conditions),
        by=entry.by,
        over=entry.over,
    )


def _labels(
    name: str, under: Mapping[str, Sequence[object]], conditions: Sequence[Condition]
) -> tuple[str, ...]:
    """The labels of the conditions whose settings are among the values, by key."""
    for key in under:
        one_of(f"a condition under in claim {name}", key, conditions[0].keys)
    return tuple(
        c.label
        for c in conditions
        if all(dict(c.values)[key] in allowed for key, allowed in under.items())
    )
