"""What `dpbench reproduce` was asked for: a table or figure, at a scale, and all of its runs."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpbench.config.buildable import check_settings
from dpbench.config.compose import compose, options
from dpbench.config.rules import ARM
from dpbench.config.settings import PATHS, is_scientific, key_of
from dpbench.errors import UserError, nearest
from dpbench.execution.prepare import build
from dpbench.paths import benchmarks_folder
from dpbench.records.digest import digest
from dpbench.tables import CORRECTED, PAPER_SCALE, Condition, conditions_of, narrowed, setting
from dpbench.validate import one_of, typed

BUDGET = "budget"
"""In the place of a file of printed epsilons: they are what the conditions ask for."""


@dataclass(frozen=True)
class Scale:
    """A size to run a table at: the paper's, or a smaller one that says what it shrinks.

    overrides are those of the command line, and what the user says comes after them.
    """

    name: str
    shrinks: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """A table to rerun: its name, its scale, the user's overrides, its composed configuration, and
    the conditions that its methods run under.

    changes: the overrides that make the runs other than those of the scale.
    """

    name: str
    scale: Scale
    overrides: tuple[str, ...]
    changes: tuple[str, ...]
    config: dict
    conditions: tuple[Condition, ...]

    @property
    def table(self) -> dict:
        return self.config["table"]

    @property
    def title(self) -> str:
        """The table's title, and what a smaller scale shrinks and the user changed of it.

        A figure of a single seed says so: its curves have no spread.
        """
        one = "figure" in self.table and len(self.table["seeds"]) == 1
        title = f"{self.table['title']}{', one seed' * one}"
        if self.scale.name == PAPER_SCALE:
            return title
        changed = "".join(f", then {change}" for change in self.changes)
        return f"{title}, at scale {self.scale.name}: {self.scale.shrinks}{changed}"

    @property
    def scale_label(self) -> str:
        """What the runs are, in a few words: whose scale, and what was changed."""
        if self.scale.name == PAPER_SCALE:
            return ", ".join(self.changes) or PAPER_SCALE
        return ", ".join([self.scale.name, *self.changes])

    @property
    def stem(self) -> str:
        """The name of its files; neither other runs nor fewer take the whole table's place."""
        scale = [] if self.scale.name == PAPER_SCALE else [self.scale.name]
        part = "changed" if self.changes else "part"
        return "-".join([self.name, *scale, *([part] if self.changes or self._is_part else [])])

    @property
    def _is_part(self) -> bool:
        return any(_narrows(o) or key_of(o) in self.conditions[0].keys for o in self.overrides)

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the data of the runs, as what of it no epsilon covers."""
        first = [next(self.cells_of(c, self.table["methods"][0])) for c in self.conditions]
        runs = [build(compose(overrides)) for overrides in first]
        told = (f"{run.dataset.name}: {note}" for run in runs for note in run.notes)
        return list(dict.fromkeys(told))

    @property
    def claims(self) -> dict[str, dict]:
        """The table's claims; of one about some conditions only, `under` has their labels."""
        return {
            name: {**claim, "under": self._labels(name, claim["under"])}
            if "under" in claim
            else claim
            for name, claim in self.table.get("claims", {}).items()
        }

    def _labels(self, claim: str, values: Mapping[str, list]) -> list[str]:
        """Of the conditions whose settings are among the values, by key."""
        typed(f"under in claim {claim}", values, dict[str, list])
        for key in values:
            one_of(f"a condition in claim {claim}", key, self.conditions[0].keys)
        return [
            c.label
            for c in self.conditions
            if all(dict(c.values)[key] in of for key, of in values.items())
        ]

    def cells(self) -> Iterator[list[str]]:
        """The overrides of every run of the table."""
        for condition in self.conditions:
            for method in self.table["methods"]:
                yield from self.cells_of(condition, method)

    def cells_of(self, condition: Condition, method: str) -> Iterator[list[str]]:
        """The overrides of every run of one method, or arm, under one of its conditions."""
        said = [*self.scale.overrides, *self.overrides, *condition.overrides()]
        row = f"{ARM}={method}" if self._has_arms else f"method={method}"
        for seed, variant in itertools.product(self.table["seeds"], self._variants(method)):
            chosen = [f"+table={self.name}", row, f"seed={seed}"]
            yield [*chosen, *said, *variant.overrides()]

    def variant_of(self, config: Mapping[str, Any]) -> str:
        """What sets a run apart from others of its method: its variant, or settings of its own."""
        declared = reversed(self._variants(self.method_of(config)))
        label = next((v.label for v in declared if v.holds_in(config)), "")
        names = dict.fromkeys([label, config["method"].get("variant", CORRECTED)])
        return ", ".join(name for name in names if name not in ("", CORRECTED)) or CORRECTED

    def _variants(self, method: str) -> list[Condition]:
        """Of a method, each by the settings that it adds; the first is the one that is meant."""
        declared = self.table.get("variants", {}).get(method, [{}])
        named = [{"method.variant": v} if isinstance(v, str) else v for v in declared]
        return [Condition(tuple(values.items())) for values in named]

    def condition_of(self, config: Mapping[str, Any]) -> str:
        """The label of the condition that a run was made under."""
        return next(c.label for c in self.conditions if c.holds_in(config))

    def method_of(self, config: Mapping[str, Any]) -> str:
        """The method, or the arm where the table has them, that a run was made for."""
        if not self._has_arms:
            return config["choices"]["method"]
        return self._arms[digest({**config, "seed": self.table["seeds"][0]})]

    @property
    def _has_arms(self) -> bool:
        return "arm" in self.table

    @cached_property
    def _arms(self) -> dict[str, str]:
        """The arm of every run with the first seed, by its digest: seeds differ no further."""
        return {
            digest(compose(next(self.cells_of(condition, arm)))): arm
            for condition in self.conditions
            for arm in self.table["methods"]
        }


def target(name: str, asked: list[str]) -> Target:
    """The table of that name at the scale and with the overrides asked for.

    Raises UserError, with the nearest names, if there is no such table or scale.
    """
    known = options("table")
    if name not in known:
        raise UserError(f"table {name} is unknown: {nearest(name, known)}")
    overrides = tuple(o for o in asked if key_of(o) != "scale")
    fixed = [o for o in overrides if key_of(o) in ("method", "seed", "table", ARM)]
    if fixed:
        raise UserError(f"{fixed[0]} is for the table to choose; use table.methods or table.seeds.")
    config = compose([f"+table={name}", *overrides])
    scale = _scale(name, config["table"], [o for o in asked if key_of(o) == "scale"])
    conditions = conditions_of(config["table"].get("conditions", []))
    if scale.overrides:
        alone = compose([f"+table={name}", *scale.overrides])
        config = compose([f"+table={name}", *scale.overrides, *overrides])
        declared = conditions_of(config["table"].get("conditions", []))
        conditions, _ = _pinned(declared, scale.overrides, alone)
    _check_names(config["table"])
    conditions, moved = _pinned(conditions, overrides, config)
    changed = (o for o in overrides if _changes(o, conditions, moved))
    changes = tuple(_without_path(o, config) for o in changed)
    return Target(name, scale, overrides, changes, config, tuple(conditions))


def _check_names(table: dict) -> None:
    """UserError for a baseline that is no method, and for printed numbers that are not there."""
    if "baseline" in table:
        arms = {rule.get("when", {}).get("arm") for rule in table.get("settings", ())}
        known = {*table["methods"], *options("method"), *arms} - {None}
        one_of("table.baseline", table["baseline"], known)
    folder = benchmarks_folder()
    files = {str(path.relative_to(folder)) for path in folder.glob("*/*.csv")}
    for key in ("published", "epsilon"):
        if table.get(key) is not None:
            one_of(f"table.{key}", table[key], files | ({BUDGET} if key == "epsilon" else set()))


def _scale(name: str, table: dict, asked: list[str]) -> Scale:
    """The scale asked for last; the paper's if none was."""
    chosen = asked[-1].partition("=")[2] if asked else PAPER_SCALE
    if chosen == PAPER_SCALE:
        return Scale(PAPER_SCALE, "", ())
    declared = table.get("scales", {})
    if chosen not in declared:
        known = nearest(chosen, [PAPER_SCALE, *declared])
        raise UserError(f"scale={chosen} is none of {name}: {known}")
    said = {"name": chosen, **declared[chosen]}
    check_settings(Scale, said, f"table.scales.{chosen}.")
    return Scale(chosen, said["shrinks"], tuple(said["overrides"]))


def _pinned(
    conditions: list[Condition], overrides: tuple[str, ...], config: dict
) -> tuple[list[Condition], set[str]]:
    """The conditions that overrides leave, and the keys they set to what no condition has."""
    moved = set()
    for key in {key_of(o) for o in overrides} & {*conditions[0].keys}:
        value = setting(config, key)
        if not any((key, value) in condition.values for condition in conditions):
            moved.add(key)
        conditions = narrowed(conditions, key, value)
    return conditions, moved


def _changes(override: str, conditions: list[Condition], moved: set[str]) -> bool:
    """Whether an override makes the runs other ones, and does not only choose among them."""
    key = key_of(override)
    if key in conditions[0].keys:
        return key in moved
    return is_scientific(override) or (key.startswith("table.") and not _narrows(override))


def _without_path(override: str, config: dict) -> str:
    """The override, or what a path in it leads to: a page is no place for anybody's folders."""
    group, _, key = key_of(override).partition(".")
    return (
        f"{group}.checksum={config[group]['checksum']}" if key in PATHS.get(group, ()) else override
    )


def _narrows(override: str) -> bool:
    return key_of(override) in ("table.methods", "table.seeds")
