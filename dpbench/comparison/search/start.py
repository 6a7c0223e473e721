"""Trial 0 of a method that contains another one: what a search of that one chose."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench.runs.config.compose import compose
from dpbench.runs.config.literals import literal
from dpbench.runs.config.settings import key_of, leaves
from dpbench.runs.config.space import Choices, Range, Space, override_texts
from dpbench.runs.config.special_case import SpecialCase, search_of
from dpbench.runs.config.table_rules import ARM, chosen_text
from dpbench.system.errors import UserError, nearest

NONE = "none"
"""The name that stands for no start."""

NUMBER = 0
"""Of the trial: those after it are the same as without it."""


@dataclass(frozen=True)
class Start:
    """The setting of trial 0. values: of all ranges, by key; own: those that make the method its
    special case; search: the one that chose the others, or "" if they are defaults."""

    special_case: str
    values: Mapping[str, str]
    own: Mapping[str, str]
    search: str

    @property
    def mark(self) -> str:
        """What the trial's line in the CSV file is marked with."""
        return " ".join([self.special_case, *override_texts(self.own)])

    @property
    def description(self) -> str:
        """What trial 0 is, as a sentence."""
        own = ", ".join(f"`{override}`" for override in override_texts(self.own))
        setting = (
            f"the setting that the search `{self.search}` chose."
            if self.search
            else f"default settings: {self.special_case} was not searched (start=NAME: elsewhere)."
        )
        return (
            f"Trial {NUMBER} is the start: with {own} the method is {self.special_case}, here at "
            f"{setting}"
        )


def started(
    case: SpecialCase, source: str, space: Space, fixed: Sequence[str], name: str, folder: Path
) -> tuple[Start, Space, list[str]]:
    """The start of a search; its space, with what the start alone changes as ranges of one value;
    and the other settings.

    source: the name of a search of the special case, in a folder or committed; "" for one that is
    named as the method's own, but for the method. Raises UserError if it has chosen nothing.
    """
    plain = compose([*fixed])
    settings = _texts(plain)
    arm = [override.partition("=")[2] for override in fixed if key_of(override) == ARM]
    searched = source or search_of(case.special_case, name, [plain["choices"]["method"], *arm])
    chosen = chosen_text(searched, folder) if searched else {}
    if source and not chosen:
        raise UserError(
            f"start={source}: neither {folder} nor the committed searches have one of this name "
            f"that chose anything; make it (of {case.special_case}), or give start={NONE}."
        )
    own = case.own({**settings, **chosen})
    held = _held([key for key in own if key not in {r.key for r in space.ranges}], settings)
    ranges = tuple(sorted([*space.ranges, *held], key=lambda range_: range_.key))
    values = {r.key: {**settings, **chosen, **own}[r.key] for r in ranges}
    rest = [override for override in fixed if key_of(override) not in own]
    return Start(case.special_case, values, own, searched if chosen else ""), Space(ranges), rest


def _held(keys: Sequence[str], settings: Mapping[str, str]) -> list[Range]:
    for key in keys:
        if key not in settings:
            raise UserError(f"start sets {key}, which is not a setting: {nearest(key, settings)}")
    return [Choices(key, (settings[key],)) for key in keys]


def _texts(plain: Mapping[str, Any]) -> dict[str, str]:
    texts = {key: literal(value) for key, value in leaves(plain)}
    return {**{key: text for key, text in texts.items() if text is not None}, **plain["choices"]}
