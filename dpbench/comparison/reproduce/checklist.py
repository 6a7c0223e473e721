"""`dpbench checklist TABLE|FOLDER`: what a reviewer asks of a comparison, answered from records.

The questions are those of Bao and Bindschaedler, R+R: Towards Reliable and Generalizable
Differentially Private Machine Learning, ACSAC 2024.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

from dpbench.comparison.compare.pairs import against, gaps_of
from dpbench.comparison.compare.side import (
    GIVEN,
    BySeed,
    Side,
    Tuning,
)
from dpbench.comparison.compare.tuning import Trials, number_of, trials_by_task, tuning_of
from dpbench.comparison.compare.verdict import BETTER, WORSE, Judged, Verdict
from dpbench.comparison.reproduce.target import Target, target_of
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.grid import NO_VALUE, Grid
from dpbench.comparison.tables.page import Page, tabular, write_texts
from dpbench.comparison.tables.runs import PlacedRecord
from dpbench.comparison.tables.sweep.page import metric_label
from dpbench.learning.metrics.derived import WORST_GROUP, value_of
from dpbench.learning.metrics.registry import metric_of, parse_name
from dpbench.privacy.guarantee import CORRECTED
from dpbench.runs.config.commands import ChecklistCommand
from dpbench.runs.config.search_path import method_name, options
from dpbench.runs.config.table_file import USUAL_BASELINE
from dpbench.runs.config.table_rules import trials_of
from dpbench.runs.records.collect import RECORDS, readable_records, readable_records_in
from dpbench.runs.records.data_name import data_name
from dpbench.runs.records.digest import group_of
from dpbench.runs.records.epsilon import Terms, is_trial
from dpbench.runs.records.folder import SEARCH, TABLES
from dpbench.runs.records.reading import required, text_of
from dpbench.runs.records.record import Record
from dpbench.system.arguments import read
from dpbench.system.errors import UserError, counted, nearest
from dpbench.system.files import files_in
from dpbench.system.grouping import grouped

FEW_SEEDS = 3
"""The fewest seeds of a condition that count as several."""

TECHNIQUES = ("augmentation", "normalization", "features", "schedule", "temperature")
"""The groups of options that a method can be combined with."""

RULES = (
    "Yes and no, with what the answer is counted from. Data sets, architectures and budgets: those "
    "with runs of the method and of the baseline; one is not several. Seeds: the fewest that a "
    f"condition has of both; below {FEW_SEEDS} is no. Better: the conditions by verdict on "
    "{metric} (margin {margin}; docs/verdicts.md), corrected for the methods under each; yes if it "
    "is better in some and worse in none. Cohen's d: the median over conditions of the "
    "mean difference over "
    "the pooled standard deviation, positive where the method is better. Conditions without this "
    "metric are not compared. Search in epsilon: whether a private search "
    "chose the settings; with the number of trials in the folder. Ablation: whether there is a run "
    "of the baseline that differs by its method alone. Combined: the combinations with "
    "augmentation, normalisation, features, schedule and temperature. Commit: whether all runs "
    "name the commit of their code, without changes to it."
)


def checklist(arguments: Sequence[str]) -> str:
    """Write OUT.md, OUT.csv and OUT.tex of the methods of a table or folder; returns the Markdown.

    Raises UserError without a table or folder that has records, and for an unknown method.
    """
    name, *rest = arguments or [""]
    if not name or "=" in name:
        raise UserError("checklist needs a table or a folder first: dpbench checklist results.")
    given = read("checklist", ChecklistCommand, rest)
    is_table = name.partition("-")[0] in options("table")
    found = _of_table(name, given.results_dir) if is_table else _of_folder(Path(name))
    found = found._replace(baseline=given.baseline or found.baseline)
    records = [entry.record for entry in found.entries]
    if records and not any(_has_metric(record, given.metric) for record in records):
        measured = {key for record in records for key in record.measured}
        known = nearest(given.metric, measured)
        raise UserError(f"no run in {name} has the metric {given.metric}: {known}")
    grid = _grid(name, found, given)
    if not grid.rows:
        raise UserError(f"{name} has runs of {found.baseline} alone: add those of a method.")
    title, margin = f"Checklist: {name}", parse_name(given.metric).margin
    rules = RULES.format(metric=metric_label(given.metric, records), margin=margin)
    markdown = Page(title, [grid, rules]).markdown
    write_texts(given.out, markdown, grid.csv, tabular(title, grid) + "\n")
    return markdown


def table_checklist(target: Target, records: Sequence[Record]) -> tuple[Grid, ...]:
    """The checklist at the foot of a table's page, by the accuracy of the worst group if all claims
    are on it; none without a baseline, nor where the runs of a row are of several settings."""
    columns = {column.name: column.metric for column in target.columns}
    claimed = {columns.get(name) for claim in target.claims for name in claim.quantities}
    given = ChecklistCommand(metric=WORST_GROUP) if claimed == {WORST_GROUP} else ChecklistCommand()
    if target.table.searches > 1 or not all(_has_metric(r, given.metric) for r in records):
        return ()
    found = _of_records(target, records, Path(target.config["results_dir"]))
    if found.baseline not in {entry.method for entry in found.entries}:
        return ()
    by = f", by {metric_label(given.metric, records)}" if given != ChecklistCommand() else ""
    grid = _grid(f"Checklist{by}: docs/verdicts.md#what-a-reviewer-asks", found, given)
    return (grid,) if grid.rows else ()


class SearchSize(NamedTuple):
    """How many trials chose a method's settings, and whether they did so privately."""

    trials: int = 0
    is_private: bool = False


class Evidence(NamedTuple):
    """The runs to answer from, the searches by method, and the method to compare with.

    tuning: of a table, by row; second_search: by method, the row after another search; trials: of a
    folder, None for a table.
    """

    entries: Sequence[PlacedRecord]
    searches: Mapping[str, SearchSize]
    baseline: str
    tuning: Mapping[str, Tuning] = {}
    second_search: Mapping[str, str] = {}
    trials: Trials | None = None


def _of_table(stem: str, folder: Path) -> Evidence:
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
    return _of_records(target, records, folder)


def _of_records(target: Target, records: Iterable[Record], folder: Path) -> Evidence:
    """The runs of a table in their main variant, and the trials of the searches that it takes
    settings from, or that are in the results folder under its name."""
    table = target.table
    entries = target.placed(r for r in records if target.variant_of(r.config) == CORRECTED)
    order = {method: place for place, method in enumerate(table.methods)}
    entries.sort(key=lambda entry: order.get(entry.method, len(order)))
    trials: Counter[str] = Counter()
    for arm, name in {(arm, name) for (_, arm), names in target.searches.items() for name in names}:
        trials[arm] += len(trials_of(name))
    for file in [] if target.searches else files_in(folder / SEARCH, f"{target.name}-*.csv"):
        way_out = ": restore or delete it, as its trials are counted."
        lines = required(text_of(file), file, way_out).splitlines()
        trials[file.stem.rpartition("-")[2]] += len(lines) - 1
    searches = {method: SearchSize(number) for method, number in trials.items()}
    return Evidence(entries, searches, table.checklist, target.tuning, table.again)


def _of_folder(folder: Path) -> Evidence:
    records = [record for record in readable_records(folder) if not record.is_audit]
    by_split = grouped((record.is_tested, record) for record in records)
    tested, trials = by_split.get(True, []), by_split.get(False, [])
    if records and not tested:
        raise UserError(
            f"{folder} has only trials of searches, on validation splits: add runs that are tested."
        )
    entries = [PlacedRecord(_condition(r), r.config["choices"]["method"], r) for r in tested]
    by_method = grouped((trial.config["choices"]["method"], trial) for trial in trials)
    by_task = trials_by_task(trials)
    sizes = grouped((method, number_of(tried)) for (method, *_), tried in by_task.items())
    searches = {
        method: SearchSize(sum(sizes[method]), all(map(is_trial, tried)))
        for method, tried in by_method.items()
    }
    return Evidence(entries, searches, USUAL_BASELINE, trials=by_task)


def _condition(record: Record) -> str:
    terms = Terms.of(record.statement).text(("delta", "unit", "zero_out"))
    model = record.config["choices"]["model"]
    return f"{data_name(record.config)}, {model}, {_budget_of(record)}, {terms}"


def _budget_of(record: Record) -> str:
    privacy = record.config.get("privacy") or {}
    epsilon, sigma = privacy.get("epsilon"), privacy.get("noise_multiplier")
    return f"epsilon {epsilon}" if epsilon is not None else f"noise multiplier {sigma}"


class Compared(NamedTuple):
    """A method and the baseline under one condition, and the verdict; None where it is not shown
    which way is better."""

    side: Side
    base: Side
    judged: Judged | None


def _compared(found: Evidence, metric: str) -> dict[str, dict[str, Compared]]:
    """The methods beside the baseline, by method and then by condition, all of one condition read
    together; without those that have runs of several settings, or no seed in common."""
    made: dict[str, dict[str, Compared]] = {}
    for condition, entries in grouped((e.condition, e) for e in found.entries).items():
        sides = {
            method: _side(found, condition, method, records, metric)
            for method, records in grouped((e.method, e.record) for e in entries).items()
            if len({record.group for record in records}) == 1
            and any(_has_metric(record, metric) for record in records)
        }
        base = sides.get(found.baseline)
        if base is None:
            continue
        other = found.second_search.get(found.baseline)
        second = [sides.pop(other)] if other in sides else []
        judged = against(sides, found.baseline, metric, second)
        for method, side in sides.items():
            if method != found.baseline and gaps_of(side.values, base.values):
                one = Compared(side, base, judged.get(method))
                made.setdefault(method, {})[condition] = one
    return made


def _side(
    found: Evidence, condition: str, method: str, records: Sequence[Record], metric: str
) -> Side:
    if found.trials is not None:
        return Side.of(method, records, metric, tuning_of(records[0], found.trials))
    tuning = found.tuning.get(row_name(condition, method), GIVEN)
    return replace(Side.of(method, records, metric, tuning), design="table")


class MethodEvidence(NamedTuple):
    """What the answers on a method are counted from: its runs and those of the baseline, those of
    its runs that are compared, how they compare by condition, and its search."""

    runs: Sequence[Record]
    of_baseline: Sequence[Record]
    inside: Sequence[Record]
    pairs: Sequence[Compared]
    search: SearchSize
    metric: str


def _grid(heading: str, found: Evidence, given: ChecklistCommand) -> Grid:
    name = method_name(found.baseline)
    head = ("method", *(text.format(name) for text in ANSWERS))
    return Grid(heading, head, tuple(_lines(heading, found, given)))


def _lines(name: str, found: Evidence, given: ChecklistCommand) -> Iterator[tuple[str, ...]]:
    """A line for each method but the baseline, or for the one that is asked for."""
    runs = grouped((entry.method, entry.record) for entry in found.entries)
    for key, method in {"baseline": found.baseline, "method": given.method}.items():
        if method and method not in runs:
            known = nearest(method, runs)
            raise UserError(f"no run in {name} is of the method {key}={method}: {known}")
    second = found.second_search.get(found.baseline)
    compared = _compared(found, given.metric)
    for method in [given.method] if given.method else runs:
        if method not in (found.baseline, second):
            pairs = compared.get(method, {})
            own = (entry for entry in found.entries if entry.method == method)
            of_method = MethodEvidence(
                runs[method],
                runs.get(found.baseline, []),
                [entry.record for entry in own if entry.condition in pairs],
                [*pairs.values()],
                found.searches.get(method, SearchSize()),
                given.metric,
            )
            yield method_name(method), *(answer(of_method) for answer in ANSWERS.values())


def _seeds(found: MethodEvidence) -> str:
    numbers = (len(gaps_of(c.side.values, c.base.values)) for c in found.pairs)
    fewest = min(numbers, default=0)
    return _answer(fewest >= FEW_SEEDS, str(fewest))


def _is_better(found: MethodEvidence) -> str:
    verdicts = Counter(c.judged.verdict for c in found.pairs if c.judged)
    tally = ", ".join(f"{verdicts[v]} {v}" for v in get_args(Verdict) if verdicts[v])
    return _answer(bool(verdicts[BETTER]) and not verdicts[WORSE], tally)


def _size(found: MethodEvidence) -> str:
    known = metric_of(found.metric)
    sizes = [_cohens_d(c.side.values, c.base.values) for c in found.pairs]
    finite = [size for size in sizes if math.isfinite(size)]
    sign = known.sign if known.better else 1
    return f"{sign * statistics.median(finite):+.2f}" if finite else NO_VALUE


def _cohens_d(ours: BySeed, others: BySeed) -> float:
    """The difference of the means over the pooled standard deviation (Cohen 1988)."""
    if min(len(ours), len(others)) < 2:
        return math.nan
    spreads = [statistics.variance(values.values()) for values in (ours, others)]
    pooled = math.sqrt(statistics.fmean(spreads))
    gap = statistics.fmean(ours.values()) - statistics.fmean(others.values())
    return gap / pooled if pooled else math.nan


def _ablation(found: MethodEvidence) -> str:
    ours, others = ({*map(_without_method, side)} for side in (found.runs, found.of_baseline))
    return _answer(not ours.isdisjoint(others))


def _without_method(record: Record) -> str:
    choices = {**record.config["choices"], "method": ""}
    return group_of({**record.config, "choices": choices, "method": {}})


def _combined(found: MethodEvidence) -> str:
    of_runs = (record.config["choices"] for record in found.runs)
    return _several({tuple(c.get(group, "none") for group in TECHNIQUES) for c in of_runs})


def _commit(found: MethodEvidence) -> str:
    commits = {str(record.provenance.get("commit") or "") for record in found.runs}
    clean = all(commit and not commit.endswith("+") for commit in commits)
    return _answer(clean, counted(len(commits), "commit") if clean else "")


ANSWERS: dict[str, Callable[[MethodEvidence], str]] = {
    "data sets": lambda found: _several({r.config["choices"]["dataset"] for r in found.inside}),
    "architectures": lambda found: _several({r.config["choices"]["model"] for r in found.inside}),
    "budgets": lambda found: _several({*map(_budget_of, found.inside)}),
    "seeds": _seeds,
    "better than {}": _is_better,
    "Cohen's d": _size,
    "search in epsilon": lambda found: _answer(
        found.search.is_private, counted(found.search.trials, "trial")
    ),
    "ablation": _ablation,
    "combined": _combined,
    "commit": _commit,
}
"""The answers on a method, by the head of a column, in which the baseline is named."""


def _has_metric(record: Record, metric: str) -> bool:
    return metric in record.measured or not math.isnan(value_of(record.measured, metric))


def _several(values: Set[object]) -> str:
    return _answer(len(values) > 1, str(len(values)))


def _answer(holds: bool, counted_from: str = "") -> str:
    """`yes (4)`, `no`."""
    return f"{'yes' if holds else 'no'}{f' ({counted_from})' if counted_from else ''}"
