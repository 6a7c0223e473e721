"""Metrics that no record has: tables and the report compute them from those of the records.

They are the accuracy of the worst group; the MCE over the last epochs, since a single evaluation
can hinge on one example; and the cost of privacy per group, of a private run against the
non-private run of the same seed.
"""

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpbench.learning.metrics.registry import WORST
from dpbench.system.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

WORST_GROUP = f"test/{WORST}"
"""Computed per run from `test/accuracy/<group>`."""

LAST_EPOCHS = 10

SAME = ["dataset", "model", "seed"]
TRAINING = "train_set/"
PER_GROUP = ("privacy_cost/", "excessive_risk/")
GAPS = ("privacy_cost_gap", "excessive_risk_gap")


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


def last_epochs_metrics(
    config: Mapping[str, Any], diagnostics: Mapping[str, list]
) -> dict[str, float]:
    """`mce_last10` of the evaluated split: the median MCE after each of the last ten epochs.

    A fraction, from a record's `diagnostics`; NaN if one of the ten is NaN. Empty if the MCE was
    not measured after each of these epochs, or there are fewer.
    """
    epochs = config.get("epochs")
    if not isinstance(epochs, int) or epochs < LAST_EPOCHS:
        return {}
    by_epoch = dict(_after_epochs(epochs, diagnostics))
    last = range(epochs - LAST_EPOCHS + 1, epochs + 1)
    if not all(epoch in by_epoch for epoch in last):
        return {}
    split = "test" if config.get("validation") is None else "validation"
    return {f"{split}/mce_last{LAST_EPOCHS}": _median([by_epoch[epoch] for epoch in last])}


def _after_epochs(epochs: int, diagnostics: Mapping[str, list]) -> Iterator[tuple[int, float]]:
    """The epochs after which the MCE was measured, each with its MCE."""
    columns = [diagnostics.get(name, []) for name in ("step", "epoch", "tested/mce")]
    for step, epoch, mce in zip(*columns, strict=False):
        # All epochs have equally many steps; other measurements lie within an epoch.
        if step * epochs == epoch * columns[0][-1]:
            yield epoch, mce


def _median(values: list[float]) -> float:
    return statistics.median(values) if all(map(math.isfinite, values)) else math.nan


def is_paired(metric: str) -> bool:
    """Whether a metric compares a run with its non-private baseline."""
    metric = metric.removeprefix(TRAINING)
    return metric.startswith(PER_GROUP) or metric in GAPS


def pair_with_baseline(
    runs: "pd.DataFrame", groups: tuple[str, str], baseline: str
) -> "pd.DataFrame":
    """The runs with their costs relative to the `baseline` run of the same data, model and seed.

    runs: one row per run, with columns dataset, model, method, seed and, for both groups k,
    `test/accuracy/<k>` (fraction) and `test/loss/<k>` (nats). Columns added for every group k:
    `privacy_cost/<k>` = accuracy_k(baseline) - accuracy_k(run) (Esipova et al. 2023, eq. 1) and
    `excessive_risk/<k>` = loss_k(run) - loss_k(baseline) (eq. 2); then `privacy_cost_gap` and
    `excessive_risk_gap`, the absolute differences between the two named groups, per run. Where the
    runs have `train_set/loss/<k>`, also the excessive risk and its gap on the training examples,
    as `train_set/excessive_risk/<k>` and `train_set/excessive_risk_gap`.

    A run without its baseline gets NaN. Raises UserError if a baseline run is duplicated, or a
    group is not in the runs.
    """
    costs: dict[str, pd.Series] = {}
    base, known = _baseline_of_each(runs, baseline), _groups(runs, groups)
    kinds = {
        "privacy_cost": ("test/accuracy", -1),
        "excessive_risk": ("test/loss", 1),
        f"{TRAINING}excessive_risk": (f"{TRAINING}loss", 1),
    }
    a, b = groups
    for kind, (measure, sign) in kinds.items():
        if f"{measure}/{a}" not in runs:
            continue
        for group in known:
            column = f"{measure}/{group}"
            costs[f"{kind}/{group}"] = sign * (runs[column] - base[column])
        costs[f"{kind}_gap"] = (costs[f"{kind}/{a}"] - costs[f"{kind}/{b}"]).abs()
    return runs.assign(**costs)


def _groups(runs: "pd.DataFrame", named: tuple[str, str]) -> list[str]:
    """All groups of the runs; UserError if one of the two named groups is not among them."""
    prefix = "test/accuracy/"
    known = [name.removeprefix(prefix) for name in runs.columns if name.startswith(prefix)]
    for group in named:
        if group not in known:
            raise UserError(f"The runs have no group {group!r}; they have {', '.join(known)}.")
    return known


def _baseline_of_each(runs: "pd.DataFrame", baseline: str) -> "pd.DataFrame":
    """For each run, in the same order, the row of its baseline run, or NaN."""
    measured = [name for name in runs.columns if name.startswith(("test/", TRAINING))]
    base = runs.loc[runs["method"] == baseline, SAME + measured]
    duplicates = base[base.duplicated(SAME)]
    if len(duplicates):
        raise UserError(
            f"There are two {baseline} runs of {dict(duplicates[SAME].iloc[0])}; keep one of them."
        )
    return runs[SAME].merge(base, on=SAME, how="left").set_axis(runs.index)
