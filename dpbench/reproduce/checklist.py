"""`dpbench checklist TABLE|FOLDER`: what a reviewer asks of a comparison, answered from records.

The questions are those of Bao and Bindschaedler, R+R: Towards Reliable and Generalizable
Differentially Private Machine Learning, ACSAC 2024.
"""

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, get_args

from dpbench.config.names import method_name
from dpbench.config.search_path import options
from dpbench.config.settings import CORRECTED
from dpbench.config.tuned import trials_of
from dpbench.metrics.paired_t import BETTER, UNDECIDED, WORSE, Verdict, judge, paired_test
from dpbench.metrics.registry import parse_name
from dpbench.records.collect import RECORDS, readable_records
from dpbench.records.data_name import data_name
from dpbench.records.digest import digest_of_scientific
from dpbench.records.divergence import DIVERGED
from dpbench.records.epsilon import Terms
from dpbench.records.folder import SEARCH, TABLES
from dpbench.records.reading import Unreadable, text_of
from dpbench.records.record import Record
from dpbench.records.trial import is_trial
from dpbench.reproduce.published import records_of
from dpbench.reproduce.target import Target, target_of
from dpbench.system.errors import UserError, nearest, print_message
from dpbench.system.files import check_replaceable, files_in, write_atomically
from dpbench.system.validate import key_values, path_of
from dpbench.tables.conditions import row_name
from dpbench.tables.counts import counted
from dpbench.tables.grid import Grid
from dpbench.tables.latex import tabular
from dpbench.tables.page import Page
from dpbench.tables.sweep.page import metric_label

DEFAULTS = {
    **{"method": "", "baseline": "dpsgd", "metric": "test/accuracy"},
    **{"results_dir": "results", "out": "checklist"},
}
SUFFIXES = (".md", ".csv", ".tex")
HEAD = (
    *("method", "data sets", "architectures", "budgets", "seeds"),
    *("better than {}", "Cohen's d", "search in epsilon", "ablation", "combined", "commit"),
)
FEW_SEEDS = 3
"""The fewest seeds of a condition that count as several."""

TECHNIQUES = ("augmentation", "normalization", "features", "schedule", "temperature")
"""The groups of options that a method can be combined with."""

RULES = (
    "Yes and no, with what the answer is counted from. Data sets, architectures and budgets: those "
    "with runs of the method and of the baseline; one is not several. Seeds: the fewest that a "
    f"condition has of both; below {FEW_SEEDS} is no. Better: the conditions by verdict on "
    "{metric} (margin {margin}; docs/verdicts.md), corrected for their number; yes if it is better "
    "in some and worse in none. Cohen's d: the median over conditions of the mean difference over "
    "the pooled standard deviation, positive where the method is better. Conditions without this "
    "metric are not compared. Search in epsilon: whether a private search "
    "chose the settings; with the number of trials in the folder. Ablation: whether there is a run "
    "of the baseline that differs by its method alone. Combined: the combinations with "
    "augmentation, normalisation, features, schedule and temperature. Commit: whether all runs "
    "name the commit of their code, without changes to it."
)


BySeed = dict[int | str, float]


class Entry(NamedTuple):
    """A run, the name of its method (or arm), and the condition that it is compared under."""

    record: Record
    method: str
    condition: str


class Search(NamedTuple):
    """How many trials chose a method's settings, and whether they did so privately."""

    trials: int
    is_private: bool


class Evidence(NamedTuple):
    """The runs to answer from, the searches by method, and the names of rows at an edge."""

    entries: Sequence[Entry]
    searches: Mapping[str, Search]
    at_edge: Collection[str]


@dataclass(frozen=True)
class Comparison:
    """The runs of a method and of a baseline, by a metric.

    at_edge: names of rows whose search ended at an end of the range that it tried.
    """

    ours: Sequence[Entry]
    others: Sequence[Entry]
    metric: str
    search: Search
    at_edge: Collection[str]

    def answers(self) -> Iterator[str]:
        """The cells of a line, after the name of the method."""
        for group in ("dataset", "model"):
            yield _several({e.record.config["choices"][group] for e in self._compared})
        yield _several({_budget(entry.record) for entry in self._compared})
        fewest = min(map(len, self._gaps.values()), default=0)
        yield _answer(fewest >= FEW_SEEDS, str(fewest))
        verdicts = Counter(self._verdicts)
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
        several settings, or neither has the metric, it is not compared."""
        found = {}
        for condition in dict.fromkeys(entry.condition for entry in self.ours):
            sides = [_alone(side, condition) for side in (self.ours, self.others)]
            if all(sides) and any(self.metric in r.measured for side in sides for r in side):
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
    def _verdicts(self) -> list[Verdict]:
        """By condition; one that is lost by a row at the edge of its range is undecided."""
        margin = parse_name(self.metric).margin
        tests = [
            paired_test(gaps, margin.at(statistics.fmean(self._pairs[c][1].values())))
            for c, gaps in self._gaps.items()
        ]
        verdicts = judge([test.scaled(self._sign) for test in tests])
        losers = {WORSE: self.ours[0].method, BETTER: self.others[0].method}
        return [
            UNDECIDED if row_name(condition, losers.get(verdict, "")) in self.at_edge else verdict
            for condition, verdict in zip(self._gaps, verdicts, strict=True)
        ]

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


def checklist(arguments: Sequence[str]) -> str:
    """Write OUT.md, OUT.csv and OUT.tex of the methods of a table or folder; returns the Markdown.

    Raises UserError without a table or folder that has records, and for an unknown method.
    """
    name, *rest = arguments or [""]
    if not name or "=" in name:
        raise UserError("checklist needs a table or a folder first: dpbench checklist results.")
    given = key_values("checklist", DEFAULTS, rest)
    out = path_of("out", given["out"], "file")
    is_table = name in options("table")
    folder = Path(given["results_dir"] if is_table else name)
    found = _of_table(target_of(name, []), folder) if is_table else _of_folder(folder)
    records = [entry.record for entry in found.entries]
    _check_metric(name, given["metric"], records)
    grid = _grid(name, found, given)
    if not grid.rows:
        raise UserError(f"{name} has runs of {given['baseline']} alone: add those of a method.")
    texts = (
        Page(f"Checklist: {name}", [grid, _rules(given["metric"], records)]).markdown,
        grid.csv,
        tabular(f"Checklist: {name}", grid) + "\n",
    )
    for suffix, text in zip(SUFFIXES, texts, strict=True):
        path = out.with_name(out.name + suffix)
        check_replaceable(path)
        write_atomically(path, text.encode(), setting="out")
    print_message(f"written: {out}{{{','.join(SUFFIXES)}}}")
    return texts[0]


def _check_metric(name: str, metric: str, records: Iterable[Record]) -> None:
    """UserError for a metric that no run has, such as the accuracy of a regression."""
    measured = {key for record in records for key in record.measured}
    if measured and metric not in measured:
        raise UserError(f"no run in {name} has the metric {metric}: {nearest(metric, measured)}")


def _rules(metric: str, records: Iterable[Record]) -> str:
    """The rules in words, with the metric that methods are compared by and its margin."""
    return RULES.format(metric=metric_label(metric, records), margin=parse_name(metric).margin)


def _lines(name: str, found: Evidence, given: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """A line for each method but the baseline, or for the one that is asked for."""
    entries, searches, at_edge = found
    methods = list(dict.fromkeys(entry.method for entry in entries))
    for key in ("baseline", "method"):
        if given[key] and given[key] not in methods:
            known = nearest(given[key], methods)
            raise UserError(f"no run in {name} is of the method {key}={given[key]}: {known}")
    others = [entry for entry in entries if entry.method == given["baseline"]]
    for method in [given["method"]] if given["method"] else methods:
        if method != given["baseline"]:
            ours = [entry for entry in entries if entry.method == method]
            search = searches.get(method, Search(0, False))
            compared = Comparison(ours, others, given["metric"], search, at_edge)
            yield method_name(method), *compared.answers()


def table_checklist(target: Target, records: Sequence[Record]) -> tuple[Grid, ...]:
    """The checklist at the foot of a table's page; none where nothing is compared with the usual
    baseline by the usual metric."""
    baseline, metric = DEFAULTS["baseline"], DEFAULTS["metric"]
    compared = baseline in target.table.methods and len(target.table.methods) > 1
    if not compared or not all(metric in record.measured for record in records):
        return ()
    found = _of_records(target, records, Path(target.config["results_dir"]))
    if baseline not in {entry.method for entry in found.entries}:
        return ()
    grid = _grid("Checklist: docs/verdicts.md#what-a-reviewer-asks", found, DEFAULTS)
    return (grid,) if grid.rows else ()


def _grid(heading: str, found: Evidence, given: Mapping[str, str]) -> Grid:
    head = tuple(text.format(method_name(given["baseline"])) for text in HEAD)
    return Grid(heading, head, tuple(_lines(heading, found, given)))


def _of_table(target: Target, folder: Path) -> Evidence:
    """The runs of a table in its file of records, and the trials of its searches."""
    path = folder / TABLES / f"{target.name}.{RECORDS}"
    if not path.exists():
        raise UserError(f"{path} does not exist: `dpbench reproduce {target.name}` makes it.")
    return _of_records(target, records_of(path), folder)


def _of_records(target: Target, records: Iterable[Record], folder: Path) -> Evidence:
    """The runs of a table in their main variant, and the trials of the searches that it takes
    settings from, or that are in the results folder under its name."""
    entries = [
        Entry(r, target.method_of(r.config), target.condition_of(r.config))
        for r in records
        if target.variant_of(r.config) == CORRECTED
    ]
    order = {method: place for place, method in enumerate(target.table.methods)}
    entries.sort(key=lambda entry: order.get(entry.method, len(order)))
    trials: Counter[str] = Counter()
    for arm, name in {(row.rpartition(", ")[2], name) for row, name in target.searches.items()}:
        trials[arm] += len(trials_of(name))
    for file in [] if target.searches else files_in(folder / SEARCH, f"{target.name}-*.csv"):
        trials[file.stem.rpartition("-")[2]] += len(_text_of(file).splitlines()) - 1
    searches = {method: Search(number, False) for method, number in trials.items()}
    return Evidence(entries, searches, target.at_edge)


def _text_of(file: Path) -> str:
    text = text_of(file)
    if isinstance(text, Unreadable):
        raise UserError(f"{file} {text.reason}: restore or delete it, as its trials are counted.")
    return text


def _of_folder(folder: Path) -> Evidence:
    """The runs of a results folder without validation split; the others are trials of searches."""
    records = [record for record in readable_records(folder) if not record.is_audit]
    by_method: dict[str, list[Record]] = {}
    for trial in (record for record in records if record.config.get("validation") is not None):
        by_method.setdefault(trial.config["choices"]["method"], []).append(trial)
    tested = [record for record in records if record.config.get("validation") is None]
    if records and not tested:
        raise UserError(
            f"{folder} has only trials of searches, on validation splits: add runs that are tested."
        )
    entries = [Entry(r, r.config["choices"]["method"], _condition(r)) for r in tested]
    searches = {
        method: Search(len(trials), all(map(is_trial, trials)))
        for method, trials in by_method.items()
    }
    return Evidence(entries, searches, ())


def _condition(record: Record) -> str:
    """What runs must share to be compared: data, model, budget, and what the epsilon is for."""
    terms = Terms.of(record.statement).text(("delta", "unit", "zero_out"))
    model = record.config["choices"]["model"]
    return f"{data_name(record.config)}, {model}, {_budget(record)}, {terms}"


def _budget(record: Record) -> str:
    privacy = record.config.get("privacy") or {}
    epsilon, sigma = privacy.get("epsilon"), privacy.get("noise_multiplier")
    return f"epsilon {epsilon}" if epsilon is not None else f"noise multiplier {sigma}"


def _alone(entries: Sequence[Entry], condition: str) -> list[Record]:
    """The runs under a condition, if they differ by their seeds alone; else none."""
    records = [entry.record for entry in entries if entry.condition == condition]
    return records if len({_settings(r.config) for r in records}) == 1 else []


def _value(record: Record, metric: str) -> float:
    """A metric in its unit; NaN where the run diverged or has no such metric."""
    if record.status == DIVERGED:
        return math.nan
    known = parse_name(metric).metric
    return (known.factor if known else 1) * record.measured.get(metric, math.nan)


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
