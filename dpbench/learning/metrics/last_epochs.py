"""Metrics over the last epochs of a run, since a single evaluation can hinge on one example."""

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

EPOCHS = 10


def last_epochs_metrics(
    config: Mapping[str, Any], diagnostics: Mapping[str, list]
) -> dict[str, float]:
    """`mce_last10` of the evaluated split: the median MCE after each of the last ten epochs.

    A fraction, from a record's `diagnostics`; NaN if one of the ten is NaN. Empty if the MCE was
    not measured after each of these epochs, or there are fewer.
    """
    epochs = config.get("epochs")
    if not isinstance(epochs, int) or epochs < EPOCHS:
        return {}
    by_epoch = dict(_after_epochs(epochs, diagnostics))
    last = range(epochs - EPOCHS + 1, epochs + 1)
    if not all(epoch in by_epoch for epoch in last):
        return {}
    split = "test" if config.get("validation") is None else "validation"
    return {f"{split}/mce_last{EPOCHS}": _median([by_epoch[epoch] for epoch in last])}


def _after_epochs(epochs: int, diagnostics: Mapping[str, list]) -> Iterator[tuple[int, float]]:
    """The epochs after which the MCE was measured, each with its MCE."""
    columns = [diagnostics.get(name, []) for name in ("step", "epoch", "tested/mce")]
    for step, epoch, mce in zip(*columns, strict=False):
        # All epochs have equally many steps; other measurements lie within an epoch.
        if step * epochs == epoch * columns[0][-1]:
            yield epoch, mce


def _median(values: list[float]) -> float:
    return statistics.median(values) if all(map(math.isfinite, values)) else math.nan
