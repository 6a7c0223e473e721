"""A method beside a baseline, from the runs of both: what a reviewer asks of the comparison."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from dpbench.comparison.compare.pairs import against, gaps_of
from dpbench.comparison.compare.side import GIVEN, BySeed, Side, tuning_of
from dpbench.comparison.compare.verdict import BETTER, WORSE, Judged, Verdict
from dpbench.comparison.reproduce.evidence import Evidence, MethodRun, SearchSize, budget_of
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.grid import counted
from dpbench.learning.metrics.derived import value_of
from dpbench.learning.metrics.registry import metric_of
from dpbench.runs.records.digest import digest_of_scientific
from dpbench.runs.records.record import Record
from dpbench.system.grouping import grouped

FEW_SEEDS = 3
"""The fewest seeds of a condition that count as several."""

TECHNIQUES = ("augmentation", "normalization", "features", "schedule", "temperature")
"""The groups of options that a method can be combined with."""


@dataclass(frozen=True)
class Compared:
    """A method and the baseline under one condition, and the verdict; None where it is not shown
    which way is better."""

    side: Side
    base: Side
    judged: Judged | None


def compared(found: Evidence, metric: str) -> dict[str, dict[str, Compared]]:
    """The methods beside the baseline, by method and then by condition, all of one condition read
    together; without those that have runs of several settings, or no seed in common."""
    made: dict[str, dict[str, Compared]] = {}
    entries = grouped(((e.condition, e.method), e.record) for e in found.entries)
    for condition in dict.fromkeys(entry.condition for entry in found.entries):
        sides = {
            method: _side(found, condition, method, records, metric)
            for (where, method), records in entries.items()
            if where == condition and _are_comparable(records, metric)
        }
        base = sides.get(found.baseline)
        if base is None:
            continue
        other = found.second_search.get(found.baseline)
        second = [sides.pop(other)] if other in sides else []
        judged = against(sides, found.baseline, metric, second)
        for method, side in sides.items():
            if method != found.baseline and gaps_of(side, base):
                one = Compared(side, base, judged.get(method))
                made.setdefault(method, {})[condition] = one
    return made


def _are_comparable(records: Sequence[Record], metric: str) -> bool:
    """Whether runs differ by their seeds alone, and some have the metric."""
    is_one_setting = len({_settings(record.config) for record in records}) == 1
    return is_one_setting and any(has_metric(record, metric) for record in records)


def _side(
    found: Evidence, condition: str, method: str, records: Sequence[Record], metric: str
) -> Side:
    """A method under a condition. The rows of a table differ in what its file says."""
    if found.trials is not None:
        return Side.of(method, records, metric, tuning_of(records[0], found.trials))
    tuning = found.tuning.get(row_name(condition, method))
    side = Side.of(method, records, metric, tuning or GIVEN)
    return replace(side, design="table")


@dataclass(frozen=True)
class Review:
    """The runs of a method and of a baseline, how they compare by condition, and the search."""

    ours: Sequence[MethodRun]
    others: Sequence[MethodRun]
    compared: Mapping[str, Compared]
    metric: str
    search: SearchSize

    def answers(self) -> Iterator[str]:
        """The cells of a line, after the name of the method."""
        for group in ("dataset", "model"):
            yield _several({e.record.config["choices"][group] for e in self._compared})
        yield _several({budget_of(entry.record) for entry in self._compared})
        fewest = min((len(gaps_of(c.side, c.base)) for c in self.compared.values()), default=0)
        yield _answer(fewest >= FEW_SEEDS, str(fewest))
        verdicts = Counter(c.judged.verdict for c in self.compared.values() if c.judged)
        tally = ", ".join(f"{verdicts[v]} {v}" for v in get_args(Verdict) if verdicts[v])
        yield _answer(bool(verdicts[BETTER]) and not verdicts[WORSE], tally)
        yield self._effect
        yield _answer(self.search.is_private, counted(self.search.trials, "trial"))
        yield _answer(self._has_ablation, "")
        combinations = {_techniques(entry.record) for entry in self.ours}
        yield _answer(len(combinations) > 1, str(len(combinations)))
        commits = {str(e.record.provenance.get("commit") or "") for e in self.ours}
        clean = all(commit and not commit.endswith("+") for commit in commits)
        yield _answer(clean, counted(len(commits), "commit") if clean else "")

    @property
    def _compared(self) -> list[MethodRun]:
        return [entry for entry in self.ours if entry.condition in self.compared]

    @property
    def _effect(self) -> str:
        known = metric_of(self.metric)
        sign = known.sign if known.better else 1
        sizes = [_cohens_d(c.side.values, c.base.values) for c in self.compared.values()]
        finite = [sign * size for size in sizes if math.isfinite(size)]
        return f"{statistics.median(finite):+.2f}" if finite else "-"

    @property
    def _has_ablation(self) -> bool:
        """Whether a baseline run differs from one of the method's by its method alone."""
        others = {_without_method(entry.record) for entry in self.others}
        return any(_without_method(entry.record) in others for entry in self.ours)


def has_metric(record: Record, metric: str) -> bool:
    """Whether a run has a metric, or the metrics that it is computed from."""
    return metric in record.measured or not math.isnan(value_of(record.measured, metric))


def _cohens_d(ours: BySeed, others: BySeed) -> float:
    """The difference of the means over the pooled standard deviation (Cohen 1988)."""
    if min(len(ours), len(others)) < 2:
        return math.nan
    spreads = [statistics.variance(values.values()) for values in (ours, others)]
    pooled = math.sqrt(statistics.fmean(spreads))
    gap = statistics.fmean(ours.values()) - statistics.fmean(others.values())
    return gap / pooled if pooled else math.nan


def _techniques(record: Record) -> tuple[str, ...]:
    choices = record.config["choices"]
    return tuple(choices.get(group, "none") for group in TECHNIQUES)


def _without_method(record: Record) -> str:
    """The settings of a run but for its seed and its method."""
    choices = {**record.config["choices"], "method": ""}
    return _settings({**record.config, "choices": choices, "method": {}})


def _settings(config: Mapping[str, Any]) -> str:
    """A name of the settings but for the seed and what is measured, the same in all versions."""
    return digest_of_scientific({**config, "seed": 0, "diagnostics": None})


def _several(values: set[str]) -> str:
    return _answer(len(values) > 1, str(len(values)))


def _answer(holds: bool, counted_from: str) -> str:
    """`yes (4)`, `no`."""
    return f"{'yes' if holds else 'no'}{f' ({counted_from})' if counted_from else ''}"
