"""A method beside a baseline, from the runs of both: what a reviewer asks of the comparison."""

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from dpbench.metrics.paired_t import BETTER, UNDECIDED, WORSE, Verdict, judge, paired_test
from dpbench.metrics.registry import parse_name
from dpbench.metrics.worst_group import value_of
from dpbench.records.data_name import data_name
from dpbench.records.digest import digest_of_scientific
from dpbench.records.divergence import DIVERGED
from dpbench.records.record import Record
from dpbench.reproduce.evidence import Entry, Search, budget_of
from dpbench.tables.conditions import row_name
from dpbench.tables.counts import counted

FEW_SEEDS = 3
"""The fewest seeds of a condition that count as several."""

TECHNIQUES = ("augmentation", "normalization", "features", "schedule", "temperature")
"""The groups of options that a method can be combined with."""

BySeed = dict[int | str, float]


@dataclass(frozen=True)
class Comparison:
    """The runs of a method and of a baseline, by a metric.

    undertuned: names of rows that may want other settings; again: the same comparison with the
    baseline after another search, beside which a difference must be shown, too.
    """

    ours: Sequence[Entry]
    others: Sequence[Entry]
    metric: str
    search: Search
    undertuned: Collection[str]
    again: "Comparison | None" = None

    def answers(self) -> Iterator[str]:
        """The cells of a line, after the name of the method."""
        for group in ("dataset", "model"):
            yield _several({e.record.config["choices"][group] for e in self._compared})
        yield _several({budget_of(entry.record) for entry in self._compared})
        fewest = min(map(len, self._gaps.values()), default=0)
        yield _answer(fewest >= FEW_SEEDS, str(fewest))
        verdicts = Counter(self._verdicts.values())
        told = ", ".join(f"{verdicts[v]} {v}" for v in get_args(Verdict) if verdicts[v])
        yield _answer(bool(verdicts[BETTER]) and not verdicts[WORSE], told)
        yield self._effect
        yield _answer(self.search.is_private, counted(self.search.trials, "trial"))
        yield _answer(self._has_ablation, "")
        combinations = {_techniques(entry.record) for entry in self.ours}
        yield _answer(len(combinations) > 1, str(len(combinations)))
        commits = {str(e.record.provenance.get("commit") or "") for e in self.ours}
        clean = all(commit and not commit.endswith("+") for commit in commits)
        yield _answer(clean, counted(len(commits), "commit") if clean else "")

    @cached_property
    def _pairs(self) -> dict[str, tuple[BySeed, BySeed]]:
        """By condition, the metric by seed of the method and of the baseline; where one has runs of
        several settings, both have other data or budgets, or neither has the metric, it is not
        compared."""
        found = {}
        for condition in dict.fromkeys(entry.condition for entry in self.ours):
            sides = [_alone(side, condition) for side in (self.ours, self.others)]
            if not all(sides) or len({_task(side[0]) for side in sides}) > 1:
                continue
            if any(has_metric(r, self.metric) for side in sides for r in side):
                ours, others = ({r.seed: _value(r, self.metric) for r in side} for side in sides)
                found[condition] = (ours, others)
        return found

    @property
    def _compared(self) -> list[Entry]:
        return [entry for entry in self.ours if entry.condition in self._gaps]

    @cached_property
    def _gaps(self) -> dict[str, list[float]]:
        gaps = {
            condition: [ours[seed] - others[seed] for seed in ours if seed in others]
            for condition, (ours, others) in self._pairs.items()
        }
        return {condition: found for condition, found in gaps.items() if found}

    @property
    def _verdicts(self) -> dict[str, Verdict]:
        """By condition; undecided where a row that may want other settings loses, or another search
        of the baseline gives another verdict."""
        margin = parse_name(self.metric).margin
        tests = [
            paired_test(gaps, margin.at(statistics.fmean(self._pairs[c][1].values())))
            for c, gaps in self._gaps.items()
        ]
        verdicts = judge([test.scaled(self._sign) for test in tests])
        return {
            condition: self._settled(condition, verdict)
            for condition, verdict in zip(self._gaps, verdicts, strict=True)
        }

    def _settled(self, condition: str, verdict: Verdict) -> Verdict:
        losers = {WORSE: self.ours[0].method, BETTER: self.others[0].method}
        if verdict not in losers:
            return verdict
        undertuned = row_name(condition, losers[verdict]) in self.undertuned
        chance = self.again is not None and self.again._verdicts.get(condition) != verdict
        return UNDECIDED if undertuned or chance else verdict

    @property
    def _effect(self) -> str:
        sizes = [_cohens_d(*self._pairs[condition]) for condition in self._gaps]
        known = [self._sign * size for size in sizes if math.isfinite(size)]
        return f"{statistics.median(known):+.2f}" if known else "-"

    @property
    def _sign(self) -> int:
        """1 where a larger value of the metric is better, or neither is, and otherwise -1."""
        metric = parse_name(self.metric).metric
        return metric.sign if metric and metric.better else 1

    @property
    def _has_ablation(self) -> bool:
        """Whether a baseline run differs from one of the method's by its method alone."""
        others = {_without_method(entry.record) for entry in self.others}
        return any(_without_method(entry.record) in others for entry in self.ours)


def _alone(entries: Sequence[Entry], condition: str) -> list[Record]:
    """The runs under a condition, if they differ by their seeds alone; else none."""
    records = [entry.record for entry in entries if entry.condition == condition]
    return records if len({_settings(r.config) for r in records}) == 1 else []


def _task(record: Record) -> tuple[str, str]:
    """The data and the budget of a run."""
    return data_name(record.config), budget_of(record)


def has_metric(record: Record, metric: str) -> bool:
    """Whether a run has a metric, or the metrics that it is computed from."""
    return metric in record.measured or not math.isnan(value_of(record.measured, metric))


def _value(record: Record, metric: str) -> float:
    """A metric in its unit; NaN where the run diverged or has no such metric."""
    if record.status == DIVERGED:
        return math.nan
    known = parse_name(metric).metric
    return (known.factor if known else 1) * value_of(record.measured, metric)


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
