"""Accuracy at equal seconds: only the settings whose runs take no longer than a limit."""

import math
import statistics
from collections.abc import Sequence

from dpbench.runs.records.other_seeds import settings_but_seed
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError
from dpbench.system.grouping import grouped

MACHINE = ("device", "threads")
"""What seconds are compared on, in the provenance of a record."""


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
