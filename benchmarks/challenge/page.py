"""The page of an entry: its numbers beside the baselines', paired by seed."""

import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence

from dpbench.comparison.compare.pairs import compare
from dpbench.comparison.compare.side import AT_EDGE, GIVEN, Side, Tuning
from dpbench.comparison.compare.verdict import Judged
from dpbench.comparison.search.report import Searched, at_edge
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.grid import NO_VALUE, Grid, epsilon_text, interval_text, number
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.comparison.tables.sweep.cells import Mean, Runs
from dpbench.learning.metrics.registry import metric_of
from dpbench.runs.config.search_path import method_name
from dpbench.runs.config.space import override_texts
from dpbench.runs.records.collect import RECORDS
from dpbench.runs.records.epsilon import legend
from dpbench.runs.records.record import Record

from .entry import Entry, Outcome

NOTE = (
    "Differences: the entry's minus the baseline's, paired by seed, with their 95% interval. "
    "Verdicts: docs/verdicts.md, corrected for the number of baselines. Epsilon covers no "
    "search. Seconds: of a run, on the machine that made it."
)


def render(entry: Entry, outcomes: Sequence[Outcome]) -> str:
    """The page as Markdown: the same records give the same text."""
    protocol = entry.protocol
    baselines = protocol.baselines()
    by_label = dict(zip(protocol.target.labels, outcomes, strict=True))
    compared = _compared(entry, by_label, baselines)
    parts: list[PageBlock] = []
    for label, outcome in by_label.items():
        grid = _grid(entry, label, outcome, baselines[label], compared[label])
        parts += [grid, [line for each in outcome.searches for line in _choice(each)]]
    records = [record for outcome in outcomes for record in outcome.tested]
    blocks = [
        _protocol(entry),
        *parts,
        f"{NOTE} {legend(record.statement for record in records)}",
        f"Made by `{shlex.join(entry.words)}`. To recount it from its records, add "
        f"`recount={entry.stem}.{RECORDS}`.",
    ]
    return Page(f"{protocol.target.title}: {entry.name}", blocks).markdown


def _compared(
    entry: Entry,
    outcomes: Mapping[str, Outcome],
    baselines: Mapping[str, Mapping[str, Sequence[Record]]],
) -> dict[str, dict[str, Judged]]:
    """The verdicts on the entry by condition and baseline, those of a condition read together."""
    metric, tuning = entry.protocol.rules.metric, entry.protocol.target.tuning
    unit = entry.protocol.target.table.unit
    found = {}
    for label, rows in baselines.items():
        outcome = outcomes[label]
        flaw = AT_EDGE if any(map(_at_edge, outcome.searches)) else ""
        ours = Side.of(entry.name, outcome.tested, metric, Tuning(outcome.trials, flaw), unit)
        tunings = {row: tuning.get(row_name(label, row), GIVEN) for row in rows}
        theirs = {row: Side.of(row, rows[row], metric, tunings[row], unit) for row in rows}
        found[label] = compare({row: (ours, side) for row, side in theirs.items()}, metric)
    return found


def _protocol(entry: Entry) -> str:
    rules, seeds = entry.protocol.rules, entry.protocol.seeds
    beyond = (
        f", {rules.extend} at a time beyond an end at which the best lies" if rules.extend else ""
    )
    searches = entry.protocol.target.table.searches
    times = f" {searches} such searches, whose means are compared." if searches > 1 else ""
    return (
        f"{rules.trials} random trials of the method's search space on a validation split (seed "
        f"{rules.trial_seed}){beyond}, the best {rules.finalists} again with {rules.final_seeds} "
        f"other seeds, by rule `{rules.rule}`; then the test set, with {len(seeds)} seeds.{times} "
        "The baselines went the same way."
    )


def _grid(
    entry: Entry,
    label: str,
    outcome: Outcome,
    baselines: Mapping[str, Sequence[Record]],
    compared: Mapping[str, Judged],
) -> Grid:
    """A line for the entry and for each baseline, the best mean first."""
    name = entry.protocol.rules.metric
    metric = metric_of(name)
    lines = [(f"{method_name(entry.name)}, the entry", Runs(outcome.tested), NO_VALUE, NO_VALUE)]
    for row, records in baselines.items():
        difference = interval_text(compared[row].test, metric.digits)
        lines.append((method_name(row), Runs(tuple(records)), difference, compared[row].words))
    lines.sort(key=lambda line: -metric.sign * line[1].mean(name).value)
    rows = (
        (
            text,
            _mean(runs.mean(name), metric.digits),
            *difference,
            epsilon_text(runs.epsilon, runs.guarantee),
            _seconds(runs.records),
        )
        for text, runs, *difference in lines
    )
    head = ("method", metric.label, "difference", "the entry is", "epsilon (PLD)", "seconds")
    return Grid(label or entry.protocol.target.config["choices"]["dataset"], head, tuple(rows))


def _mean(mean: Mean, digits: int | None) -> str:
    value, spread = (number(x, digits) for x in (mean.value, mean.spread))
    return f"{value} ± {spread} ({mean.n})"


def _seconds(records: Sequence[Record]) -> str:
    seconds = [s for r in records if (s := r.provenance.get("seconds")) is not None]
    return number(statistics.fmean(seconds), 1) if seconds else NO_VALUE


def _choice(searched: Searched) -> Iterator[str]:
    """What was chosen, and which of it lies at an edge of what was tried."""
    for chosen in searched.chosen:
        settings = shlex.join(override_texts(chosen.values))
        yield f"Chosen: `{settings}`, trial {chosen.number}."
    yield from _at_edge(searched)


def _at_edge(searched: Searched) -> list[str]:
    request, trials = searched.request, searched.trials
    return [
        line
        for chosen in searched.chosen
        for line in at_edge(chosen, trials, request.space.ranges, request.special)
    ]
