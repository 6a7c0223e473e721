"""A table of a sweep: means over seeds of the runs that each cell has, and their epsilons."""

import json
import re
import shlex
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from dpbench.comparison.compare.side import value_in
from dpbench.comparison.compare.tuning import Trials
from dpbench.comparison.tables.conditions import setting
from dpbench.learning.metrics.students_t import standard_deviation
from dpbench.privacy.guarantee import weakest
from dpbench.runs.config.literals import literal
from dpbench.runs.config.settings import NAMED_GROUPS, canonical, leaves, varying_keys
from dpbench.runs.records.digest import group_of
from dpbench.runs.records.epsilon import OF_ITS_SEARCH, Terms, is_trial, largest_epsilon
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError, nearest
from dpbench.system.grouping import grouped
from dpbench.system.validate import quoted, spelled_number

Key = tuple[Any, ...]
"""The values of the settings of a row, or of a column."""

CellKey = tuple[Key, Key]
"""A row and a column."""

OUTER_COMMA = re.compile(r",(?![^\[]*\])(?![^{]*\})")
"""A comma between values, and not within a list or a mapping."""

DESCRIPTION = tuple(
    f"dataset.{key}" for key in ("rows", "features", "classes", "groups", "checksum")
)
"""What data of the user's own are described by in a record, which follows from their settings."""

MOST_VALUES, LONG = 3, 40
"""The most values of a setting that a refusal names, and characters of one."""


@dataclass(frozen=True)
class SweepLayout:
    """The settings whose values are rows and columns, the names of the metrics, the method that
    others are compared with, if any, and the trials of searches by task."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    metrics: tuple[str, ...]
    baseline: str = ""
    trials: Trials = field(default_factory=dict)

    def cell_of(self, config: Mapping[str, Any]) -> CellKey:
        """The row and the column of a run."""
        row = tuple(value_of(config, key) for key in self.rows)
        return row, tuple(value_of(config, key) for key in self.columns)


class Mean(NamedTuple):
    """The mean of a metric over n runs, in the metric's unit, and its standard deviation."""

    value: float
    spread: float
    n: int


@dataclass(frozen=True)
class Runs:
    """The runs of one row and column, which differ by their seeds alone."""

    records: tuple[Record, ...]

    @property
    def epsilon(self) -> float | str:
        """The largest epsilon by PLD, or why there is none."""
        if any(map(is_trial, self.records)):
            return OF_ITS_SEARCH
        return largest_epsilon((record.privacy for record in self.records), "pld")

    @property
    def terms(self) -> Terms | None:
        """The terms of the epsilon, which all runs share; None without one."""
        if isinstance(self.epsilon, str):
            return None
        return Terms.of(self.records[0].statement)

    @property
    def guarantee(self) -> str:
        return weakest(record.privacy["guarantee"] for record in self.records)

    def measure(self, name: str) -> bool:
        return any(name in record.measured for record in self.records)

    def mean(self, name: str) -> Mean:
        """The mean of a metric; NaN where a run diverged or has no such metric."""
        values = [value_in(record, name) for record in self.records]
        return Mean(statistics.fmean(values), standard_deviation(values), len(values))


def value_of(config: Mapping[str, Any], key: str) -> Any:
    """The option chosen in a group, or the value at a dotted key, as on a command line, such as
    `[8,16]` and `{age:[40,15]}`; None where there is none."""
    try:
        value = setting(config, key)
    except (KeyError, TypeError):
        return None
    if isinstance(value, dict):
        return literal(value)
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else value


def filter_records(
    records: Sequence[Record], filters: Mapping[str, str], own: Iterable[str] = ()
) -> list[Record]:
    """The records with these values of settings, each one value or several with commas between
    them; UserError for a setting or value of none. own: settings of the command, which may be
    misspelt."""
    check_keys(records, [*filters], own)
    selected = list(records)
    for key, text in filters.items():
        values = {str(value_of(record.config, key)) for record in selected}
        parts = [text] if text in values else map(str.strip, OUTER_COMMA.split(text))
        # Lists are written here without spaces.
        wanted = [part if part in values else part.replace(", ", ",") for part in parts]
        for value in wanted:
            if not any(_is(value_of(record.config, key), value) for record in selected):
                raise UserError(f"no record has {key}={value}: {nearest(value, values)}")
        selected = [r for r in selected if any(_is(value_of(r.config, key), v) for v in wanted)]
    return selected


def _is(value: object, text: str) -> bool:
    return str(value) == text or (value is None and text == "null") or value == spelled_number(text)


def check_keys(records: Sequence[Record], keys: Sequence[str], others: Iterable[str] = ()) -> None:
    """UserError for a setting that no record has. others: names that may be meant, too."""
    for key in keys:
        if all(value_of(record.config, key) is None for record in records):
            known = {name for record in records for name, _ in leaves(record.config)}.union(others)
            known |= {group for record in records for group in record.config["choices"]}
            raise UserError(f"no record has the setting {key}: {nearest(key, known)}")


def group_runs(records: Sequence[Record], layout: SweepLayout) -> dict[CellKey, Runs]:
    """The runs by row and column; UserError where runs in one cell differ by more than the seed."""
    check_keys(records, [*layout.rows, *layout.columns])
    cells: dict[CellKey, dict[Any, Record]] = {}
    for record in records:
        identity = record.group, record.seed
        cells.setdefault(layout.cell_of(record.config), {})[identity] = record
    if mixed := [cell for cell in cells.values() if len({group for group, _ in cell}) > 1]:
        raise _mixed(mixed)
    return {key: Runs(tuple(cell.values())) for key, cell in cells.items()}


def _mixed(cells: Sequence[Mapping[Any, Record]]) -> UserError:
    """Names all settings in which runs of one cell differ, of all cells at once.

    cells: by group and seed.
    """
    configs = [[run.config for run in cell.values()] for cell in cells]
    varied = sorted({key for of_cell in configs for key in varied_settings(of_cell)})
    if any(key.startswith("dataset") and key not in DESCRIPTION for key in varied):
        varied = [key for key in varied if key not in DESCRIPTION]
    texts = [{key: _text(value_of(c, key)) for key in varied} for c in chain(*configs)]
    counts = {key: Counter(text[key] for text in texts).most_common() for key in varied}
    ((common, _),) = Counter(tuple(text.items()) for text in texts).most_common(1)
    # An option need not have all settings of the others of its group.
    chosen = [
        f"{key}={text}"
        for key, text in common
        if not (text == "null" and key.rpartition(".")[0] in varied)
    ]
    return UserError(
        f"runs in one cell differ in {', '.join(_values(key, counts[key]) for key in varied)}: add "
        f"each to rows or columns, or select one value of it, e.g. {shlex.join(chosen)}."
    )


def _text(value: object) -> str:
    return "null" if value is None else str(canonical(value))


def _values(key: str, counts: list[tuple[str, int]]) -> str:
    shown = [f"{text if len(text) <= LONG else quoted(text)}: {n}" for text, n in counts]
    more = [f"{len(counts) - MOST_VALUES} more"] if len(counts) > MOST_VALUES else []
    return f"{key} ({', '.join([*shown[:MOST_VALUES], *more])})"


def varied_settings(configs: Sequence[Mapping[str, Any]]) -> set[str]:
    """The groups of which records' configurations have several options with several settings, and
    the settings that differ between those with the same options."""
    configs = [*{group_of(config): config for config in configs}.values()]  # of any version
    named = [{group: config["choices"][group] for group in NAMED_GROUPS} for config in configs]
    off = dict.fromkeys(("seed", "diagnostics"))
    flat = [dict(leaves({**c, **off, "choices": n})) for c, n in zip(configs, named, strict=True)]
    keys = varying_keys(flat)
    groups = {key.removeprefix("choices.").split(".")[0] for key in keys}
    chosen = [{g: o for g, o in c["choices"].items() if g in groups} for c in configs]
    options = grouped(pair for choices in chosen for pair in choices.items())
    alike = grouped(
        (json.dumps(choices, sort_keys=True), settings)
        for choices, settings in zip(chosen, flat, strict=True)
    )
    several = {group for group, found in options.items() if len({*found}) > 1}
    return several | {key for same in alike.values() for key in varying_keys(same)}
