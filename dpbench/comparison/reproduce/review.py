"""What a reviewer asks of a method beside a baseline, from the runs and searches of both."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from dpbench.comparison.compare.pairs import against, gaps_of
from dpbench.comparison.compare.side import (
    GIVEN,
    BySeed,
    Side,
    TaskKey,
    Tuning,
    trials_by_task,
    tuning_of,
)
from dpbench.comparison.compare.verdict import BETTER, WORSE, Judged, Verdict
from dpbench.comparison.reproduce.target import Target, target_of
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.grid import NO_VALUE, counted
from dpbench.comparison.tables.runs import PlacedRecord
from dpbench.learning.metrics.derived import value_of
from dpbench.learning.metrics.registry import metric_of
from dpbench.privacy.guarantee import CORRECTED
from dpbench.runs.config.table_file import USUAL_BASELINE
from dpbench.runs.config.table_rules import trials_of
from dpbench.runs.records.collect import RECORDS, readable_records, readable_records_in
from dpbench.runs.records.data_name import data_name
from dpbench.runs.records.digest import digest_of_scientific
from dpbench.runs.records.epsilon import Terms, is_trial
from dpbench.runs.records.folder import SEARCH, TABLES
from dpbench.runs.records.reading import Unreadable, text_of
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError
from dpbench.system.files import files_in
from dpbench.system.grouping import grouped


class SearchSize(NamedTuple):
    """How many trials chose a method's settings, and whether they did so privately."""

    trials: int
    is_private: bool


class Evidence(NamedTuple):
    """The runs to answer from, the searches by method, and the method that others are compared
    with.

    tuning: of a table, by row; second_search: by method, the row that is it after another search;
    trials: of a folder, the number by task, None for a table.
    """

    entries: Sequence[PlacedRecord]
    searches: Mapping[str, SearchSize]
    baseline: str
    tuning: Mapping[str, Tuning] = {}
    second_search: Mapping[str, str] = {}
    trials: Mapping[TaskKey, int] | None = None


def evidence_of_table(stem: str, folder: Path) -> Evidence:
    """The runs of a table in its file of records, and the trials of its searches.

    stem: the table's name, with the scale, `-part` or `-changed` that its files have.
    """
    name, *kinds = stem.split("-")
    scales = target_of(name, []).table.scales
    target = target_of(name, [f"scale={kind}" for kind in kinds if kind in scales])
    path = folder / TABLES / f"{stem}.{RECORDS}"
    records = readable_records_in(path)
    if not records:
        raise UserError(f"{path} has no readable record: `{target.command}` makes it.")
    return evidence_of_records(target, records, folder)


def evidence_of_records(target: Target, records: Iterable[Record], folder: Path) -> Evidence:
    """The runs of a table in their main variant, and the trials of the searches that it takes
    settings from, or that are in the results folder under its name."""
    main = (r for r in records if target.variant_of(r.config) == CORRECTED)
    entries = target.placed(main)
    order = {method: place for place, method in enumerate(target.table.methods)}
    entries.sort(key=lambda entry: order.get(entry.method, len(order)))
    trials: Counter[str] = Counter()
    named = {(arm, name) for (_, arm), names in target.searches.items() for name in names}
    for arm, name in named:
        trials[arm] += len(trials_of(name))
    for file in [] if target.searches else files_in(folder / SEARCH, f"{target.name}-*.csv"):
        trials[file.stem.rpartition("-")[2]] += len(_text_of(file).splitlines()) - 1
    searches = {method: SearchSize(number, False) for method, number in trials.items()}
    table = target.table
    return Evidence(entries, searches, table.checklist, target.tuning, table.again)


def _text_of(file: Path) -> str:
    text = text_of(file)
    if isinstance(text, Unreadable):
        raise UserError(f"{file} {text.reason}: restore or delete it, as its trials are counted.")
    return text


def evidence_of_folder(folder: Path) -> Evidence:
    """The runs of a results folder without validation split; the others are trials of searches."""
    records = [record for record in readable_records(folder) if not record.is_audit]
    by_split = grouped((record.config.get("validation") is None, record) for record in records)
    tested, trials = by_split.get(True, []), by_split.get(False, [])
    by_method = grouped((trial.config["choices"]["method"], trial) for trial in trials)
    if records and not tested:
        raise UserError(
            f"{folder} has only trials of searches, on validation splits: add runs that are tested."
        )
    entries = [PlacedRecord(_condition(r), r.config["choices"]["method"], r) for r in tested]
    searches = {
        method: SearchSize(len(tried), all(map(is_trial, tried)))
        for method, tried in by_method.items()
    }
    return Evidence(entries, searches, USUAL_BASELINE, trials=trials_by_task(records))


def _condition(record: Record) -> str:
    """What runs must share to be compared: data, model, budget, and what the epsilon is for."""
    terms = Terms.of(record.statement).text(("delta", "unit", "zero_out"))
    model = record.config["choices"]["model"]
    return f"{data_name(record.config)}, {model}, {budget_of(record)}, {terms}"


def budget_of(record: Record) -> str:
    privacy = record.config.get("privacy") or {}
    epsilon, sigma = privacy.get("epsilon"), privacy.get("noise_multiplier")
    return f"epsilon {epsilon}" if epsilon is not None else f"noise multiplier {sigma}"


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
    for condition, entries in grouped((e.condition, e) for e in found.entries).items():
        sides = {
            method: _side(found, condition, method, records, metric)
            for method, records in grouped((e.method, e.record) for e in entries).items()
            if _are_comparable(records, metric)
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


def answers(
    ours: Sequence[PlacedRecord],
    others: Sequence[PlacedRecord],
    by_condition: Mapping[str, Compared],
    metric: str,
    search: SearchSize,
) -> Iterator[str]:
    """The cells of a line, after the name of the method, from the runs of the method and of a
    baseline, how they compare by condition, and the search."""
    inside = [entry.record for entry in ours if entry.condition in by_condition]
    for group in ("dataset", "model"):
        yield _several({record.config["choices"][group] for record in inside})
    yield _several(set(map(budget_of, inside)))
    pairs = by_condition.values()
    fewest = min((len(gaps_of(c.side, c.base)) for c in pairs), default=0)
    yield _answer(fewest >= FEW_SEEDS, str(fewest))
    verdicts = Counter(c.judged.verdict for c in pairs if c.judged)
    tally = ", ".join(f"{verdicts[v]} {v}" for v in get_args(Verdict) if verdicts[v])
    yield _answer(bool(verdicts[BETTER]) and not verdicts[WORSE], tally)
    sizes = [_cohens_d(c.side.values, c.base.values) for c in pairs]
    known, finite = metric_of(metric), [size for size in sizes if math.isfinite(size)]
    sign = known.sign if known.better else 1
    yield f"{sign * statistics.median(finite):+.2f}" if finite else NO_VALUE
    yield _answer(search.is_private, counted(search.trials, "trial"))
    methods = [{_without_method(entry.record) for entry in side} for side in (ours, others)]
    yield _answer(not methods[0].isdisjoint(methods[1]), "")
    yield _several({_techniques(entry.record) for entry in ours})
    commits = {str(e.record.provenance.get("commit") or "") for e in ours}
    clean = all(commit and not commit.endswith("+") for commit in commits)
    yield _answer(clean, counted(len(commits), "commit") if clean else "")


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


def _several(values: Set[object]) -> str:
    return _answer(len(values) > 1, str(len(values)))


def _answer(holds: bool, counted_from: str) -> str:
    """`yes (4)`, `no`."""
    return f"{'yes' if holds else 'no'}{f' ({counted_from})' if counted_from else ''}"
