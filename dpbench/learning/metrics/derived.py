"""Metrics that no record has: tables and the report compute them from those of the records.

They are the accuracy of the worst group; the MCE over the last epochs, since a single evaluation
can hinge on one example; and the cost of privacy per group, of a private run against the
non-private run of the same seed.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dpbench.learning.metrics.registry import WORST
from dpbench.system.errors import UserError

WORST_GROUP = f"test/{WORST}"
"""Computed per run from `test/accuracy/<group>`."""

LAST_EPOCHS = 10

SAME = ("dataset", "model", "seed")
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
    values = [by_epoch[epoch] for epoch in last]
    median = statistics.median(values) if all(map(math.isfinite, values)) else math.nan
    split = "test" if config.get("validation") is None else "validation"
    return {f"{split}/mce_last{LAST_EPOCHS}": median}


def _after_epochs(epochs: int, diagnostics: Mapping[str, list]) -> Iterator[tuple[int, float]]:
    columns = [diagnostics.get(name, []) for name in ("step", "epoch", "tested/mce")]
    for step, epoch, mce in zip(*columns, strict=False):
        # All epochs have equally many steps; other measurements lie within an epoch.
        if step * epochs == epoch * columns[0][-1]:
            yield epoch, mce


def is_paired(metric: str) -> bool:
    """Whether a metric compares a run with its non-private baseline."""
    metric = metric.removeprefix(TRAINING)
    return metric.startswith(PER_GROUP) or metric in GAPS


def pair_with_baseline(
    runs: Sequence[Mapping[str, Any]], groups: tuple[str, str], baseline: str
) -> list[Mapping[str, Any]]:
    """The runs with their costs relative to the `baseline` run of the same data, model and seed.

    runs: each with dataset, model, method, seed and, for both groups k, `test/accuracy/<k>`
    (fraction) and `test/loss/<k>` (nats). Added for every group k: `privacy_cost/<k>` (Esipova et
    al. 2023, eq. 1) and `excessive_risk/<k>` (eq. 2), see KINDS; then `privacy_cost_gap` and
    `excessive_risk_gap`, the absolute differences between the two named groups, per run. Where the
    runs have `train_set/loss/<k>`, also the excessive risk and its gap there.

    A run without its baseline gets NaN. Raises UserError if a baseline run is duplicated, or a
    group is not in the runs.
    """
    base = _by_place(run for run in runs if run["method"] == baseline)
    known = _groups(runs, groups)
    return [{**run, **dict(_costs(run, base.get(_place(run), {}), known, groups))} for run in runs]


KINDS = {
    "privacy_cost": ("test/accuracy", -1),
    "excessive_risk": ("test/loss", 1),
    f"{TRAINING}excessive_risk": (f"{TRAINING}loss", 1),
}
"""The costs of privacy: the metric that each is a difference of, and its sign."""


def _costs(
    run: Mapping[str, Any], base: Mapping[str, Any], known: Iterable[str], named: tuple[str, str]
) -> Iterator[tuple[str, float]]:
    for kind, (measure, sign) in KINDS.items():
        if f"{measure}/{named[0]}" in run:
            names = {group: f"{measure}/{group}" for group in known}
            costs = {g: sign * (run[n] - base.get(n, math.nan)) for g, n in names.items()}
            yield from ((f"{kind}/{group}", cost) for group, cost in costs.items())
            yield f"{kind}_gap", abs(costs[named[0]] - costs[named[1]])


def _groups(runs: Iterable[Mapping[str, Any]], named: tuple[str, str]) -> list[str]:
    prefix = "test/accuracy/"
    names = dict.fromkeys(name for run in runs for name in run if name.startswith(prefix))
    known = [name.removeprefix(prefix) for name in names]
    for group in named:
        if group not in known:
            raise UserError(f"The runs have no group {group!r}; they have {', '.join(known)}.")
    return known


def _place(run: Mapping[str, Any]) -> tuple:
    return tuple(run[name] for name in SAME)


def _by_place(runs: Iterable[Mapping[str, Any]]) -> dict[tuple, Mapping[str, Any]]:
    found: dict[tuple, Mapping[str, Any]] = {}
    for run in runs:
        if found.setdefault(_place(run), run) is not run:
            place = dict(zip(SAME, _place(run), strict=True))
            raise UserError(f"There are two {run['method']} runs of {place}; keep one of them.")
    return found
