"""The accuracy of the worst group, computed from the accuracies of all groups."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpbench.learning.metrics.registry import WORST

if TYPE_CHECKING:
    import pandas as pd

WORST_GROUP = f"test/{WORST}"
"""Not in the records: tables compute it, per run, from `test/accuracy/<group>`."""


def value_of(metrics: Mapping[str, float], name: str) -> float:
    """A metric of a run, NaN where it has none; `SPLIT/worst_group_accuracy` is computed."""
    split, _, base = name.partition("/")
    if base != WORST:
        return metrics.get(name, math.nan)
    groups = (value for key, value in metrics.items() if key.startswith(f"{split}/accuracy/"))
    return min((value for value in groups if not math.isnan(value)), default=math.nan)


def with_worst_group(runs: "pd.DataFrame") -> "pd.DataFrame":
    """The runs with WORST_GROUP, the lowest of each run's `test/accuracy/<group>` (fractions).

    A run without groups gets NaN; runs that have the metric already stay as they are.
    """
    if WORST_GROUP in runs.columns:
        return runs
    groups = [name for name in runs.columns if name.startswith("test/accuracy/")]
    return runs.join(runs[groups].astype(float).min(axis=1).rename(WORST_GROUP))
