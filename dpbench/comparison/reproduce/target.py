"""The target of `dpbench reproduce`: a table or figure at a scale, and all of its runs."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from dpbench.comparison.compare.side import AT_EDGE, ELSEWHERE, Tuning
from dpbench.comparison.tables.conditions import (
    Condition,
    conditions_of,
    restricted_to,
    row_name,
    setting,
)
from dpbench.comparison.tables.edition import PAPER_SCALE, SELECTING, Edition
from dpbench.comparison.tables.runs import PlacedRecord
from dpbench.privacy.guarantee import CORRECTED
from dpbench.runs.config import buildable
from dpbench.runs.config.buildable import check_settings, settings_of
from dpbench.runs.config.plugins import published_files
from dpbench.runs.config.search_path import as_flags, options
from dpbench.runs.config.settings import is_scientific, key_of, path_settings, variant_of
from dpbench.runs.config.special_case import has_special_case, special_case
from dpbench.runs.config.table_file import Scale, TableFile
from dpbench.runs.config.table_rules import (
    ARM,
    chose_an_edge,
    chosen_text,
    search_of,
    settings_of_search,
    table_of,
    trials_of,
)
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import RunConfig, run_config
from dpbench.runs.records.digest import digest
from dpbench.runs.records.folder import SEARCH
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError, nearest
from dpbench.system.paths import searches_folder
from dpbench.system.validate import one_of

T = TypeVar("T")

RowKey = tuple[str, str]
"""The label of a condition, and a method or arm: a row of the table."""

BUDGET = "budget"
"""In place of a file of printed epsilons: the printed epsilon is the condition's budget."""


@dataclass(frozen=True)
class Target(Edition):
    """A table to reproduce, with its composed configuration, from which its runs follow."""

    config: RunConfig

    def computed_by(self, kind: type[T]) -> T:
        """The settings in `table.compute` as an object of `kind`, a dataclass; targets are built.

        Raises UserError for invalid settings.
        """
        node = {"compute": settings_of(self.table.compute or {})}
        settings = buildable.build("table", node)["compute"]
        check_settings(kind, settings, "table.compute.")
        return kind(**settings)

    @property
    def notes(self) -> list[str]:
        """Notes on the data of the runs, such as on statistics that no epsilon covers."""
        methods = self.table.ready if self.table.has_arms else self.table.methods[:1]
        cells = itertools.product(self.labels, methods)
        runs = [run_of(self._first[cell][0]) for cell in cells]
        notes = (f"{run.dataset.name}: {note}" for run in runs for note in run.notes)
        return list(dict.fromkeys(notes))

    @property
    def published(self) -> Path:
        """The file of the published numbers; UserError where there are none."""
        return published_files()[one_of("table.published", self.table.published, published_files())]

    @cached_property
    def tuning(self) -> dict[str, Tuning]:
        """How the settings of rows that a search chose were chosen, by name."""
        return {row_name(*cell): self._tuning(cell, names) for cell, names in self.searches.items()}

    def _tuning(self, cell: RowKey, searches: Sequence[str]) -> Tuning:
        """Another setting may serve a row better of whose searches one chose an end of the values
        it tried, or was made under another condition, or did not try the special case of its
        method."""
        at_edge = any(map(chose_an_edge, searches))
        flaw = AT_EDGE if at_edge else "" if self._is_searched(cell) else ELSEWHERE
        method = self._first[cell][0]["choices"]["method"]
        case = special_case(method)
        unsearched = equals = ""
        if case:
            folder = Path(self.config["results_dir"]) / SEARCH
            if not all(has_special_case(search, method) for search in searches):
                unsearched = case.special_case
            if all(case.is_that_of(chosen_text(search, folder)) for search in searches):
                equals = case.special_case
        return Tuning(min(len(trials_of(s)) for s in searches), flaw, unsearched, equals)

    def _is_searched(self, cell: RowKey) -> bool:
        """Whether a row has the settings that its search was made at; a budget of privacy is none
        for the baseline, which is not private."""
        is_private = cell[1] != self.table.baseline
        settings = self.table.tuned_at.items()
        needed = ((k, v) for k, v in settings if is_private or not k.startswith("privacy"))
        try:
            return Condition(tuple(needed)).is_met_by(self._first[cell][0].plain)
        except KeyError as error:
            raise UserError(f"table.tuned_at: its runs have no setting {error}.") from error

    @cached_property
    def searches(self) -> dict[RowKey, list[str]]:
        """The searches whose choices rows take, by the row's cell."""
        rules = self.table.settings
        if not self.table.seeds or not (self.table.tuned or any(rule.tuned for rule in rules)):
            return {}
        named = {
            cell: [search_of(table_of(c["table"]), c["choices"], c["seed"]) for c in configs]
            for cell, configs in self._first.items()
        }
        return {cell: [*dict.fromkeys(names)] for cell, names in named.items() if names[0]}

    @cached_property
    def _first(self) -> dict[RowKey, list[RunConfig]]:
        """The first run of each row, after each of its searches, by the row's cell."""
        return {
            (condition.label, arm): [
                run_config(next(self.cells_of(condition, arm, seed)))
                for seed in self._first_seeds.values()
            ]
            for arm, condition in itertools.product(self.table.ready, self.conditions)
        }

    @cached_property
    def _first_seeds(self) -> dict[int, int]:
        seeds = reversed(self.table.seeds)
        return dict(sorted((self.table.search_number(seed), seed) for seed in seeds))

    def cells(self) -> Iterator[list[str]]:
        """The overrides of every run of the table."""
        for condition in self.conditions:
            for method in self.table.ready:
                yield from self.cells_of(condition, method)

    def cells_of(self, condition: Condition, method: str, *seeds: int) -> Iterator[list[str]]:
        """The overrides of every run of one method, or arm, under one condition. seeds: by default
        those of the table."""
        common = [*self.scale.overrides, *self.overrides, *condition.overrides()]
        row = f"{ARM}={method}" if self.table.has_arms else f"method={method}"
        seeds = seeds or tuple(self.table.seeds)
        for seed, variant in itertools.product(seeds, self._variants(method)):
            yield [f"+table={self.name}", row, f"seed={seed}", *common, *variant.overrides()]

    def variant_of(self, config: Mapping[str, Any]) -> str:
        """The variant of a run among those of its method."""
        declared = reversed(self._variants(self.method_of(config)))
        label = next((v.label for v in declared if v.is_met_by(config)), "")
        names = dict.fromkeys([label, variant_of(config)])
        return ", ".join(name for name in names if name not in ("", CORRECTED)) or CORRECTED

    def _variants(self, method: str) -> list[Condition]:
        declared = self.table.variants.get(method, [{}])
        settings = [{"method.variant": v} if isinstance(v, str) else v for v in declared]
        return [Condition(tuple(values.items())) for values in settings]

    def condition_of(self, config: Mapping[str, Any]) -> str:
        """The label of a run's condition; UserError for a run of another table."""
        for condition in self.conditions:
            if condition.is_met_by(config):
                return condition.label
        raise UserError(f"the run {digest(dict(config))} is under no condition of {self.name}.")

    def placed(self, records: Iterable[Record]) -> list[PlacedRecord]:
        """Records with their conditions, and their methods or arms."""
        return [
            PlacedRecord(self.condition_of(r.config), self.method_of(r.config), r) for r in records
        ]

    def method_of(self, config: Mapping[str, Any]) -> str:
        if not self.table.has_arms:
            return config["choices"]["method"]
        seed = self._first_seeds[self.table.search_number(config["seed"])]
        return self._arms[digest({**config, "seed": seed})]

    @cached_property
    def _arms(self) -> dict[str, str]:
        return {run.digest: arm for (_, arm), runs in self._first.items() for run in runs}


def target_of(name: str, arguments: list[str]) -> Target:
    """The table of that name at a scale (`scale=NAME`) and with the overrides in the arguments.

    Raises UserError, with the nearest names, if there is no such table or scale.
    """
    one_of("table", name, options("table"))
    overrides = tuple(o for o in arguments if key_of(o) != "scale")
    fixed = [o for o in overrides if key_of(o) in ("method", "seed", "table", ARM)]
    if fixed:
        raise UserError(f"{fixed[0]} is set by the table: use table.methods or table.seeds.")
    config = run_config([f"+table={name}", *overrides])
    scale_name, scale = _scale(name, table_of(config["table"]), arguments)
    scaled = config
    if scale.overrides:
        scaled = run_config([f"+table={name}", *scale.overrides])
        config = run_config([f"+table={name}", *scale.overrides, *overrides])
    table = table_of(config["table"])
    conditions, _ = _narrow(conditions_of(table.conditions), scale.overrides, scaled.plain)
    conditions, undeclared = _narrow(conditions, overrides, config.plain)
    changes = tuple(
        _without_path(o, config.plain) for o in overrides if _is_change(o, conditions, undeclared)
    )
    replaced = "dataset" in map(key_of, changes) and "dataset" not in conditions[0].keys
    other_data = config["choices"]["dataset"] if replaced else ""
    at_scale = scale_name, scale, overrides, changes, other_data, tuple(as_flags())
    target = Target(name, table, tuple(conditions), *at_scale, config)
    _check_names(target.table)
    _check_searches(target)
    return target


def _check_names(table: TableFile) -> None:
    """UserError for an unknown baseline, for missing files of published numbers, and for variants,
    which a figure would draw as one."""
    if table.figure and table.variants:
        raise UserError("a figure draws methods or arms: make table.variants arms (table.arm).")
    if table.baseline:
        arms = {rule.when["arm"] for rule in table.settings if "arm" in rule.when}
        one_of("table.baseline", table.baseline, {*table.methods, *options("method"), *arms})
    for row in table.planned:
        one_of("table.planned", row, table.methods)
    files = {*published_files()}
    if table.published is not None:
        one_of("table.published", table.published, files)
    if isinstance(table.epsilon, str):
        one_of("table.epsilon", table.epsilon, files | {BUDGET})


def _check_searches(target: Target) -> None:
    named = ((cell, search) for cell, names in target.searches.items() for search in names)
    for cell, search in named:
        if settings_of_search(search) is None:
            raise UserError(
                f"{target.name} takes the settings of {row_name(*cell)} from the search {search}, "
                f"which is not in {searches_folder()}: make it by dpbench search name={search}, "
                "and copy its CSV file there."
            )


def _scale(name: str, table: TableFile, arguments: Sequence[str]) -> tuple[str, Scale]:
    scales = {PAPER_SCALE: Scale("", []), **table.scales}
    chosen = [o.partition("=")[2] for o in arguments if key_of(o) == "scale"]
    wanted = chosen[-1] if chosen else PAPER_SCALE
    if wanted not in scales:
        raise UserError(f"scale={wanted} is not declared by {name}: {nearest(wanted, scales)}")
    return wanted, scales[wanted]


def _narrow(
    conditions: list[Condition], overrides: Sequence[str], config: dict
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
