"""The one-line summary of a finished run."""

import math
from collections.abc import Iterator

from dpbench.learning.metrics.registry import REGISTRY, parse_name
from dpbench.runs.records.epsilon import EXACT, epsilon_in_words, rounded_up
from dpbench.runs.records.record import Record

SUMMARY_METRICS = ("accuracy", "ece", "coverage", "set_size", "r2", "rmse", "perplexity")
"""The metrics in the line, if the task has them."""


def summary(record: Record, reused: bool = False) -> str:
    """Accuracy, worst group, ECE, coverage and size of prediction sets, epsilon by PLD, the largest
    advantage of a membership attack, and seconds; for regression R² and RMSE, for a
    language model its perplexity.

    reused: the run was finished before this command, whose time is not that of the record.
    """
    results = ", ".join([*_metrics(record), epsilon_in_words(record), *_attack(record)])
    if reused:
        return f"finished earlier, so nothing was trained: {results}"
    seconds = record.provenance.get("seconds")
    return results if seconds is None else f"{results}, {seconds:.0f} s"


def _metrics(record: Record) -> Iterator[str]:
    parsed = {parse_name(name): value for name, value in record.metrics.items()}
    tested = {name: value for name, value in parsed.items() if name.split != "train_set"}
    mark = f" ({EXACT})" if any(name.split == "validation" for name in tested) else ""
    for base in SUMMARY_METRICS:
        for name, value in tested.items():
            if name.base == base and not name.group:
                yield f"{name.split} {REGISTRY[base].label} {_formatted(base, value)}{mark}"
        groups = {n.group: value for n, value in tested.items() if n.base == base and n.group}
        measured = [group for group, value in groups.items() if not math.isnan(value)]
        if base == "accuracy" and len(measured) > 1:
            worst = min(measured, key=lambda group: groups[group])
            yield f"worst group {_formatted(base, groups[worst])} ({worst}){mark}"


def _attack(record: Record) -> Iterator[str]:
    advantage = record.attack_bounds.get("membership_advantage", 1.0)
    if advantage < 1:
        yield f"membership advantage at most {rounded_up(100 * advantage, 1)}%"


def _formatted(base: str, value: float) -> str:
    metric = REGISTRY[base]
    number = f"{metric.factor * value:.{metric.digits or 3}f}"
    return f"{number}%" if metric.unit == "percent" else number
