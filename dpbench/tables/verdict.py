"""The one rule that says whether a published number was reproduced."""

import math

from dpbench.tables.published import Published
from dpbench.tables.spec import PAPER_SCALE, STANDARD_DEVIATION, Column, TableSpec

NOTHING_PUBLISHED = "-"
MISSING = "missing"
IMPOSSIBLE = "not possible"
NO_NUMBER = "no number"
OTHER_SCALE = "other scale"


def verdict(
    spec: TableSpec, column: Column, ours: float, standard_error: float, printed: Published | None
) -> str:
    """Our mean and its standard error, in the column's unit, held against the printed number.

    With r half a unit of the last printed digit, `reproduced` if
    |ours - printed| <= 2 sqrt(se_ours^2 + se_printed^2 + r^2), else `close` if within the column's
    tolerance, else `differs`. At another scale than the paper's it is always `other scale`.
    An unknown standard error of ours (one run) reproduces nothing; one that was not printed is 0.
    """
    if printed is None:
        return NOTHING_PUBLISHED
    if math.isnan(ours):
        return NO_NUMBER
    if spec.scale != PAPER_SCALE:
        return OTHER_SCALE
    errors = (standard_error, published_standard_error(spec, printed), printed.rounding)
    distance = abs(ours - float(printed.value))
    if _at_most(distance, 2 * math.hypot(*errors)):
        return "reproduced"
    return "close" if _at_most(distance, column.tolerance) else "differs"


def published_standard_error(spec: TableSpec, printed: Published) -> float:
    """The standard error of a printed mean, from whichever spread the paper printed; else 0."""
    spread = float(printed.spread or 0)
    if spec.spread == STANDARD_DEVIATION:
        return spread / math.sqrt(spec.published_runs)
    return spread


def rule(spec: TableSpec) -> str:
    """The rule in words, to be printed under the table."""
    if spec.scale != PAPER_SCALE:
        return (
            f"Verdict: these runs are not of the scale of the paper ({spec.scale}), so "
            f'"{OTHER_SCALE}" stands where a number was published, and only the order of the '
            f"methods{_gaps(spec)} compared."
        )
    return (
        "Verdict: reproduced if |ours - published| <= 2 sqrt(se_ours^2 + se_published^2 + r^2), "
        f"with se the standard error over runs{_conversion(spec)} (0 where the paper printed no "
        "spread) and r half a unit of the last printed digit; otherwise close if within "
        f"{_tolerances(spec)}; otherwise differs. A single run of ours has no standard error and "
        f'is never reproduced. "{NOTHING_PUBLISHED}" means that nothing was published.'
    )


def compares_gaps(spec: TableSpec) -> bool:
    """Whether gaps to the reference are held against print: where the numbers cannot be."""
    return spec.scale != PAPER_SCALE and spec.reference is not None


def _gaps(spec: TableSpec) -> str:
    if not compares_gaps(spec):
        return " is"
    return (
        f" and the gaps to {spec.reference} are (unclear: one seed, or 0 is within the 95% "
        "confidence interval, by Student's t over the seeds;"
        " the ± of a printed gap takes the runs as independent)"
    )


def _conversion(spec: TableSpec) -> str:
    if spec.spread != STANDARD_DEVIATION:
        return ""
    return f", a printed standard deviation being divided by sqrt({spec.published_runs})"


def _tolerances(spec: TableSpec) -> str:
    """Columns gathered by tolerance: `1 (acc_a, acc_b), 0.03 (loss_a)`."""
    names: dict[float, list[str]] = {}
    for column in spec.columns:
        names.setdefault(column.tolerance, []).append(column.name)
    return ", ".join(f"{tolerance:g} ({', '.join(group)})" for tolerance, group in names.items())


def _at_most(value: float, bound: float) -> bool:
    """value <= bound, forgiving floating point: 81 - 80 must not exceed a tolerance of 1."""
    return value <= bound + 1e-9
