"""Runs that differ by their seed alone, so that nobody reports the best of them unnoticed."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dpbench.learning.metrics.registry import parse_name
from dpbench.runs.config.search_path import method_name
from dpbench.runs.records.record import Record


def left_out(chosen: Sequence[Record], known: Iterable[Record], metric: str) -> Iterator[str]:
    """For each group of chosen runs of which others with other seeds are known, a sentence on how
    it would stand with them. metric: the full name; runs without it do not count."""
    groups, everything = _by_settings(chosen, metric), _by_settings(known, metric)
    for settings, ours in groups.items():
        all_runs = everything.get(settings, {}) | ours
        if others := sorted(all_runs.keys() - ours.keys(), key=str):
            name = method_name(next(iter(ours.values())).config["choices"]["method"])
            yield (
                f"{name}: {_mean(ours, metric)} over {len(ours)} of the {len(all_runs)} seeds that "
                f"were run, and {_mean(all_runs, metric)} over all (left out: "
                f"{', '.join(map(str, others))})."
            )


def _by_settings(records: Iterable[Record], metric: str) -> dict[str, dict[Any, Record]]:
    found: dict[str, dict[Any, Record]] = {}
    for record in records:
        if metric in record.measured and not record.is_audit:
            group = found.setdefault(record.group, {})
            group[record.seed] = record
    return found


def _mean(runs: Mapping[Any, Record], metric: str) -> str:
    name = parse_name(metric)
    known = name.metric
    mean = statistics.fmean(record.measured[metric] for record in runs.values())
    if not name.is_known:
        return f"{metric} {mean:.3g}"
    digits = 3 if known.digits is None else known.digits
    return f"{known.label} {known.factor * mean:.{digits}f}"
