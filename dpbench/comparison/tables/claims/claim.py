"""A paper's claims about the rows of a table or figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from dpbench.comparison.tables.conditions import Condition
from dpbench.runs.config.table_file import ClaimEntry, Statistic, TableFile
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

Relation = Literal["better", "larger", "smaller"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)


@dataclass(frozen=True)
class Claim:
    """Each of `rows` is better (larger, smaller) than each of `than`, in each of `quantities`.

    statement: the claim in a sentence, with its regime; source: where the paper makes it, or OURS;
    method: the source's method that it is about; regime: where the source claims it; read: what of
    the source was read, "" of none. than: rows under the same
    condition, rows under another one by their full name (`batch_size 256, dpsgd`), or a number.
    quantities: columns of a table, series of a figure, the difference of two (`loss_b - loss_a`,
    where the first defines which way is better), or the mean of columns (`mean(loss_a, loss_b)`).
    under: labels of the conditions that the claim is about, None for all. by: the least difference,
    in the quantity's unit; below 0, how far a row may fall behind. over: the statistic of a series
    along a run. unequal_budgets: whether it is about what a larger epsilon is worth.
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
    unequal_budgets: bool = False
    method: str = ""
    regime: str = ""
    read: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it is no claim of a paper."""
        return self.source.startswith(OURS)


OURS = "ours"
"""The source of a claim that no paper makes, as it stands or before `, after PAPER`."""


def claims_of(table: TableFile, conditions: Sequence[Condition]) -> tuple[Claim, ...]:
    """The claims of a table, in order; UserError for one that compares nothing."""
    return tuple(_claim(n, entry, table, conditions) for n, entry in (table.claims or {}).items())


def _claim(
    name: str, entry: ClaimEntry, table: TableFile, conditions: Sequence[Condition]
) -> Claim:
    given = {relation: rows for relation in RELATIONS if (rows := getattr(entry, relation))}
    if len(given) != 1:
        raise UserError(f"Claim {name} must have one of {', '.join(RELATIONS)}, with rows.")
    ((relation, rows),) = given.items()
    for key, values in {relation: rows, "than": entry.than, "in": entry.quantities}.items():
        if not values or len(set(values)) < len(values):
            raise UserError(f"{key} in claim {name} must name at least one, and none twice.")
    return Claim(
        name=name,
        statement=f"{entry.regime}: {entry.statement}" if entry.regime else entry.statement,
        source=entry.source,
        relation=relation,
        rows=tuple(rows),
        than=tuple(entry.than),
        quantities=tuple(entry.quantities),
        under=None if entry.under is None else _labels(name, entry.under, conditions),
        by=entry.by,
        over=entry.over,
        unequal_budgets=entry.unequal_budgets,
        method=entry.method or (rows[0] if len(rows) == 1 else ""),
        regime=entry.regime or table.regime,
        read=entry.read or table.read or "",
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
