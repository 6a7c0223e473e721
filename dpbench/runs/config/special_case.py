"""The special case that a method contains: `start` in the search space of its file.

Such a method can only lose to its special case by its search, so its search tries that one's chosen
setting first.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from dpbench.runs.config.literals import literal
from dpbench.runs.config.search_path import file_of, options
from dpbench.runs.config.space import START, space_of
from dpbench.runs.config.table_rules import trials_of
from dpbench.system.errors import UserError
from dpbench.system.schema import parsed
from dpbench.system.validate import number, one_of, spelled_number


class SpecialCase(Struct, frozen=True, forbid_unknown_fields=True):
    """A method that another one is, exactly or almost, with settings of its own. constants: those
    settings by key; products: those that are products of settings of the special case, by key."""

    special_case: str
    constants: dict[str, Any] = field(default_factory=dict)
    products: dict[str, list[str]] = field(default_factory=dict)

    @property
    def texts(self) -> dict[str, str]:
        """The constants as text."""
        return {key: str(literal(value)) for key, value in self.constants.items()}

    def own(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings of the containing method that make it the special case with these."""
        products = {key: _product(key, names, settings) for key, names in self.products.items()}
        return {**products, **self.texts}

    def is_that_of(self, trial: Mapping[str, str]) -> bool:
        """Whether a line of a search's file is the start, or has the same constants."""
        same = (
            spelled_number(trial.get(key, "")) == spelled_number(text)
            for key, text in self.texts.items()
        )
        return bool(trial.get(START)) or (not self.products and all(same))

    def is_open(self, given: Iterable[str]) -> bool:
        """Whether none of the settings that make the method this one is among the keys given."""
        return {*self.constants, *self.products}.isdisjoint(given)


def special_case(method: str) -> SpecialCase | None:
    """The special case of a method, by the search space of its name; UserError for a broken one."""
    start = space_of(method).get(START)
    if start is None:
        return None
    path = file_of("method", method)
    case = parsed(f"{START} of {path}", start, SpecialCase)
    one_of(f"{START} of {path}: special_case", case.special_case, options("method"))
    return case


def has_special_case(search: str, method: str) -> bool:
    """Whether the trials of a committed search of a method include its special case: as the start,
    or in a trial with the same constants."""
    case = special_case(method)
    return case is not None and any(map(case.is_that_of, trials_of(search)))


def search_of(method: str, name: str, own: Collection[str]) -> str:
    """The name that a search of a method has if another search, of what `own` names, has this one;
    "" if that name contains none of them as a part between hyphens."""
    parts = name.split("-")
    return "-".join(method if p in own else p for p in parts) if {*parts} & {*own} else ""


def _product(key: str, names: Sequence[str], settings: Mapping[str, str]) -> str:
    if unknown := [name for name in names if name not in settings]:
        raise UserError(f"{START} makes {key} a product of {unknown[0]}, which is not a setting.")
    if len(names) == 1:
        return settings[names[0]]
    return repr(math.prod(number(name, spelled_number(settings[name])) for name in names))
