"""The target of `dpbench reproduce`: a table or figure at a scale, and all of its runs."""

import itertools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from dpbench.config import buildable
from dpbench.config.buildable import check_settings, settings_of
from dpbench.config.compose import compose, options
from dpbench.config.plugins import published_files
from dpbench.config.rules import ARM, search_of
from dpbench.config.settings import CORRECTED, is_scientific, key_of, path_settings, variant_of
from dpbench.config.tuned import chose_an_edge, settings_of_search
from dpbench.execution.prepare import build
from dpbench.records.digest import digest
from dpbench.system.errors import UserError, nearest
from dpbench.system.validate import one_of, typed
from dpbench.tables.conditions import (
    Condition,
    conditions_of,
    restricted_to,
    row_name,
    setting,
)
from dpbench.tables.spec import PAPER_SCALE

T = TypeVar("T")

SELECTING = ("table.methods", "table.seeds")
"""Settings of a table that select some of its runs without changing them."""

BUDGET = "budget"
"""In place of a file of printed epsilons: the printed epsilon is the condition's budget."""


@dataclass(frozen=True)
class Scale:
    """A size to run a table at: the paper's, or a smaller one.

    description: what is smaller; overrides: those of the scale, before those of the user.
    """

    name: str
    description: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """A table to reproduce: its name, its scale, the user's overrides, its composed configuration,
    and the conditions that its methods run under.

    changes: the overrides by which runs differ from those of the scale.
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
        """The table's title, with the description of a smaller scale and the user's changes.

        The title of a figure says if there is only one seed, since curves then have no spread.
        """
        title = self.table["title"]
        if self.other_data:
            title += f", here with dataset={self.other_data}"
        if "figure" in self.table and len(self.table["seeds"]) == 1:
            title += ", one seed"
        if self.scale.name == PAPER_SCALE:
            return title
        changed = "".join(f", then {change}" for change in self.changes)
        return f"{title}, at scale {self.scale.name}: {self.scale.description}{changed}"

    @property
    def other_data(self) -> str:
        """The data set that the user has put in place of the table's only one; "" if none."""
        replaced = any(key_of(change) == "dataset" for change in self.changes)
        several = "dataset" in self.conditions[0].keys
        return self.config["choices"]["dataset"] if replaced and not several else ""

    @property
    def scale_label(self) -> str:
        """The scale and the changes in a few words: "paper" for the paper's own runs."""
        if self.scale.name == PAPER_SCALE:
            return ", ".join(self.changes) or PAPER_SCALE
        return ", ".join([self.scale.name, *self.changes])

    @property
    def stem(self) -> str:
        """The name of its files, with a suffix for changed runs and for a part of the table."""
        stem = self.name
        if self.scale.name != PAPER_SCALE:
            stem += f"-{self.scale.name}"
        if self.changes:
            return f"{stem}-changed"
        return f"{stem}-part" if self.selection else stem

    @property
    def selection(self) -> tuple[str, ...]:
        """The overrides that select some of the runs without changing them."""
        selecting = {*SELECTING, *self.conditions[0].keys}
        kept = (o for o in self.overrides if o not in self.changes)
        return tuple(o for o in kept if key_of(o) in selecting)

    @property
    def part(self) -> tuple[str, ...]:
        """A sentence on which runs were selected; none for the whole table."""
        return (f"In part: {' '.join(self.selection)}.",) if self.selection else ()

    @property
    def command(self) -> str:
        """The command that makes its files, without settings of execution, and with the checksum
        of data of the user's own in place of their path."""
        scale = [] if self.scale.name == PAPER_SCALE else [f"scale={self.scale.name}"]
        words = ["dpbench", "reproduce", self.name, *scale, *self.changes, *self.selection]
        return shlex.join(words)

    @property
    def labels(self) -> list[str]:
        """The labels of the conditions."""
        return [condition.label for condition in self.conditions]

    def computed_by(self, kind: type[T]) -> T:
        """The settings in `table.compute` as an object of `kind`, a dataclass; targets are built.

        Raises UserError for invalid settings.
        """
        node = {"compute": settings_of(self.table["compute"])}
        settings = buildable.build("table", node)["compute"]
        check_settings(kind, settings, "table.compute.")
        return kind(**settings)

    @property
    def notes(self) -> list[str]:
        """Notes on the data of the runs, such as on statistics that no epsilon covers."""
        methods = self.table["methods"] if self.has_arms else self.table["methods"][:1]
        cells = itertools.product(self.conditions, methods)
        runs = [build(compose(next(self.cells_of(*cell)))) for cell in cells]
        notes = (f"{run.dataset.name}: {note}" for run in runs for note in run.notes)
        return list(dict.fromkeys(notes))

    @property
    def claims(self) -> dict[str, dict]:
        """The table's claims, with the labels of conditions in place of the settings in `under`."""
        return {
            name: {**claim, "under": self._labels(f"under in claim {name}", claim["under"])}
            if "under" in claim
            else claim
            for name, claim in self.table.get("claims", {}).items()
        }

    @property
    def at_edge(self) -> list[str]:
        """The names of the rows whose settings a search chose at an end of the values it tried."""
        return [row for row, search in self.searches.items() if chose_an_edge(search)]

    @property
    def searches(self) -> dict[str, str]:
        """The search whose choice each row takes, by the row's name; empty without `tuned`."""
        if "tuned" not in self.table:
            return {}
        return {
            row_name(condition.label, arm): search_of(
                {**self.table, "arm": arm}, {**self.config["choices"], **dict(condition.values)}
            )
            for arm, condition in itertools.product(self.table["methods"], self.conditions)
        }

    def _labels(self, what: str, values: Mapping[str, list]) -> list[str]:
        """The labels of the conditions whose settings are among the values, by key."""
        typed(what, values, dict[str, list])
        for key in values:
            one_of(f"a condition {what}", key, self.conditions[0].keys)
        return [
            c.label
            for c in self.conditions
            if all(dict(c.values)[key] in allowed for key, allowed in values.items())
        ]

    def cells(self) -> Iterator[list[str]]:
        """The overrides of every run of the table."""
        for condition in self.conditions:
            for method in self.table["methods"]:
                yield from self.cells_of(condition, method)

    def cells_of(self, condition: Condition, method: str) -> Iterator[list[str]]:
        """The overrides of every run of one method, or arm, under one condition."""
        common = [*self.scale.overrides, *self.overrides, *condition.overrides()]
        row = f"{ARM}={method}" if self.has_arms else f"method={method}"
        for seed, variant in itertools.product(self.table["seeds"], self._variants(method)):
            yield [f"+table={self.name}", row, f"seed={seed}", *common, *variant.overrides()]

    def variant_of(self, config: Mapping[str, Any]) -> str:
        """The variant of a run among those of its method."""
        declared = reversed(self._variants(self.method_of(config)))
        label = next((v.label for v in declared if v.is_met_by(config)), "")
        names = dict.fromkeys([label, variant_of(config)])
        return ", ".join(name for name in names if name not in ("", CORRECTED)) or CORRECTED

    def _variants(self, method: str) -> list[Condition]:
        """The variants of a method, each as the settings that it adds; the main one first."""
        declared = self.table.get("variants", {}).get(method, [{}])
        settings = [{"method.variant": v} if isinstance(v, str) else v for v in declared]
        return [Condition(tuple(values.items())) for values in settings]

    def condition_of(self, config: Mapping[str, Any]) -> str:
        """The label of a run's condition; UserError for a run of another table."""
        for condition in self.conditions:
            if condition.is_met_by(config):
                return condition.label
        raise UserError(f"the run {digest(dict(config))} is under no condition of {self.name}.")

    def method_of(self, config: Mapping[str, Any]) -> str:
        """The method of a run, or its arm where the table has arms."""
        if not self.has_arms:
            return config["choices"]["method"]
        return self._arms[digest({**config, "seed": self.table["seeds"][0]})]

    @property
    def has_arms(self) -> bool:
        """Whether rows differ by more than their method, such as by data set and model."""
        return "arm" in self.table

    @cached_property
    def _arms(self) -> dict[str, str]:
        """The arms by the digests of the runs with the first seed, which stand for all seeds."""
        return {
            digest(compose(next(self.cells_of(condition, arm)))): arm
            for condition in self.conditions
            for arm in self.table["methods"]
        }


def target_of(name: str, arguments: list[str]) -> Target:
    """The table of that name at a scale (`scale=NAME`) and with the overrides in the arguments.

    Raises UserError, with the nearest names, if there is no such table or scale.
    """
    one_of("table", name, options("table"))
    overrides = tuple(o for o in arguments if key_of(o) != "scale")
    fixed = [o for o in overrides if key_of(o) in ("method", "seed", "table", ARM)]
    if fixed:
        raise UserError(f"{fixed[0]} is set by the table: use table.methods or table.seeds.")
    config = compose([f"+table={name}", *overrides])
    scale = _scale(name, config["table"], [o for o in arguments if key_of(o) == "scale"])
    conditions = conditions_of(config["table"].get("conditions", []))
    if scale.overrides:
        scaled = compose([f"+table={name}", *scale.overrides])
        config = compose([f"+table={name}", *scale.overrides, *overrides])
        declared = conditions_of(config["table"].get("conditions", []))
        conditions, _ = _narrow(declared, scale.overrides, scaled)
    _check_names(config["table"])
    conditions, undeclared = _narrow(conditions, overrides, config)
    changes = tuple(
        _without_path(o, config) for o in overrides if _is_change(o, conditions, undeclared)
    )
    target = Target(name, scale, overrides, changes, config, tuple(conditions))
    _check_searches(target)
    return target


def _check_names(table: dict) -> None:
    """UserError for an unknown baseline, and for missing files of published numbers."""
    if "baseline" in table:
        arms = {rule.get("when", {}).get("arm") for rule in table.get("settings", ())}
        known = {*table["methods"], *options("method"), *arms} - {None}
        one_of("table.baseline", table["baseline"], known)
    files = {*published_files()}
    for key in ("published", "epsilon"):
        if table.get(key) is not None:
            one_of(f"table.{key}", table[key], files | ({BUDGET} if key == "epsilon" else set()))


def _check_searches(target: Target) -> None:
    """UserError where a row would be trained with default settings, since its search is missing."""
    for row, search in target.searches.items():
        if settings_of_search(search) is None:
            raise UserError(
                f"{target.name} takes the settings of {row} from the search {search}, which is not "
                f"in results/search/: make it by dpbench search name={search}, and copy its CSV "
                "file there."
            )


def _scale(name: str, table: dict, choices: list[str]) -> Scale:
    """The scale of the last `scale=NAME`, by default the paper's."""
    chosen = choices[-1].partition("=")[2] if choices else PAPER_SCALE
    if chosen == PAPER_SCALE:
        return Scale(PAPER_SCALE, "", ())
    declared = table.get("scales", {})
    if chosen not in declared:
        known = nearest(chosen, [PAPER_SCALE, *declared])
        raise UserError(f"scale={chosen} is not declared by {name}: {known}")
    settings = {"name": chosen, **declared[chosen]}
    check_settings(Scale, settings, f"table.scales.{chosen}.")
    return Scale(chosen, settings["description"], tuple(settings["overrides"]))


def _narrow(
    conditions: list[Condition], overrides: tuple[str, ...], config: dict
) -> tuple[list[Condition], set[str]]:
    """The conditions that match overrides, and the keys that they set to undeclared values."""
    undeclared = set()
    for key in {key_of(o) for o in overrides} & {*conditions[0].keys}:
        value = setting(config, key)
        if not any((key, value) in condition.values for condition in conditions):
            undeclared.add(key)
        conditions = restricted_to(conditions, key, value)
    return conditions, undeclared


def _is_change(override: str, conditions: list[Condition], undeclared: set[str]) -> bool:
    """Whether an override changes the runs, rather than only selecting some of them."""
    key = key_of(override)
    if key in conditions[0].keys:
        return key in undeclared
    return is_scientific(override) or (key.startswith("table.") and key not in SELECTING)


def _without_path(override: str, config: dict) -> str:
    """The override with a file's checksum instead of its path, as pages show no paths."""
    group, _, key = key_of(override).partition(".")
    if key and key in path_settings(group, config[group]):
        return f"{group}.checksum={config[group]['checksum']}"
    return override
