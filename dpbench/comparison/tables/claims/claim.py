"""A paper's claims about the rows of a table or figure."""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from msgspec import structs

from dpbench.comparison.tables.conditions import Condition
from dpbench.runs.config.table_file import ClaimEntry, TableFile
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

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
