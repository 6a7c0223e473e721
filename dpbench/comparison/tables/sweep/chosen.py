"""Of the settings in each cell of a table, the one that was the best on validation splits, and
those whose runs take no longer than a limit."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dpbench.comparison.compare.side import value_in
from dpbench.comparison.tables.sweep.cells import CellKey, SweepLayout
from dpbench.learning.metrics.registry import metric_of
from dpbench.runs.records.digest import setting_of
from dpbench.runs.records.other_seeds import settings_but_seed
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError
from dpbench.system.grouping import grouped

BySetting = dict[str, list[Record]]
"""Runs by the name of their settings, budget included, but for the seed and the split."""

MACHINE = ("device", "threads")
"""What seconds are compared on, in the provenance of a record."""


class Chosen(NamedTuple):
    """The runs that are shown, how many settings were tried in each cell, and the cells in which
    the setting shown is not the best of these."""

    records: list[Record]
    tried: dict[CellKey, int]
    not_best: tuple[CellKey, ...]


def on_the_test_set(records: Iterable[Record]) -> list[Record]:
    """The runs without a validation split; UserError where there is none."""
    if not (found := [r for r in records if r.config.get("validation") is None]):
        raise UserError(
            "best=validation chooses by runs with a validation split, and shows runs without one. "
            "There are none: rerun the best settings without validation=."
        )
    return found


def best_on_validation(
    tested: Sequence[Record], trials: Sequence[Record], layout: SweepLayout
) -> Chosen:
    """The runs of the chosen settings, and how they were chosen.

    tested: runs on the test set; trials: runs on validation splits. A setting counts by the mean
    over its seeds of the table's first metric on validation; the only tested one of a cell is kept
    whatever its trials. Raises UserError where there is nothing to choose by, and for a cell in
    which no trial is of a tested setting.
    """
    metric = f"validation/{layout.metrics[0].partition('/')[2]}" if layout.metrics else ""
    known = metric_of(metric)
    if known.better is None:
        raise UserError("best=validation needs a metric for which more, or less, is better.")
    if not trials:
        raise UserError("best=validation needs runs with a validation split: see dpbench search.")
    tried, chosen, not_best = _by_cell(trials, layout), [], []
    for cell, settings in _by_cell(tested, layout).items():
        means = {
            name: known.sign * statistics.fmean(value_in(run, metric) for run in runs)
            for name, runs in tried.get(cell, {}).items()
        }
        ranked = {name: mean for name, mean in means.items() if not math.isnan(mean)}
        both = [name for name in settings if name in ranked]
        if not both and len(settings) > 1:
            name = ", ".join(str(value) for key in cell for value in key) or "the table"
            raise UserError(
                f"none of the {len(settings)} tested settings of {name} has a trial with {metric}: "
                "search it, or select one setting."
            )
        shown = max(both, key=ranked.__getitem__) if both else next(iter(settings))
        chosen += settings[shown]
        if shown not in ranked or ranked[shown] < max(ranked.values()):
            not_best.append(cell)
    return Chosen(chosen, {cell: len(names) for cell, names in tried.items()}, tuple(not_best))


def _by_cell(records: Iterable[Record], layout: SweepLayout) -> dict[CellKey, BySetting]:
    cells: dict[CellKey, BySetting] = {}
    for record in records:
        config = record.config
        name = setting_of(config) + json.dumps(config.get("privacy"), sort_keys=True)
        cells.setdefault(layout.cell_of(config), {}).setdefault(name, []).append(record)
    return cells


def within(seconds: float, records: Sequence[Record]) -> list[Record]:
    """The runs of settings that take at most so many seconds in the mean over their seeds.

    A method that costs twice as much per step may spend its time on half as many, at the same
    epsilon. Raises UserError where runs are of several machines, and where none is within.
    """
    machines = {str([record.provenance.get(name) for name in MACHINE]) for record in records}
    if len(machines) > 1:
        raise UserError(
            f"seconds={seconds:g} compares times on one machine, and these runs differ in "
            f"{' or '.join(MACHINE)}: select those of one."
        )
    taken = grouped(
        (settings_but_seed(r.config), r.measured.get("seconds", math.inf)) for r in records
    )
    means = {settings: statistics.fmean(values) for settings, values in taken.items()}
    kept = [r for r in records if means[settings_but_seed(r.config)] <= seconds]
    if not kept:
        raise UserError(
            f"no run takes at most seconds={seconds:g}: the fastest take {min(means.values()):.3g}."
        )
    return kept
