"""The page of an entry: its numbers beside the baselines', paired by seed."""

import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence

from dpbench.challenge.entry import Entry, Outcome
from dpbench.config.names import method_name
from dpbench.config.space import override_texts
from dpbench.metrics.paired_t import (
    BETTER,
    UNDECIDED,
    WORSE,
    PairedTest,
    Verdict,
    judge,
    paired_test,
)
from dpbench.metrics.registry import parse_name
from dpbench.records.collect import RECORDS
from dpbench.records.epsilon import legend
from dpbench.records.record import Record
from dpbench.search.report import at_edge
from dpbench.tables.conditions import row_name
from dpbench.tables.grid import NO_VALUE, Grid, epsilon_text, interval_text, number
from dpbench.tables.page import Block, Page
from dpbench.tables.sweep.cells import Mean, Runs

NOTE = (
    "Differences: the entry's minus the baseline's, paired by seed, with their 95% interval. "
    "Verdicts: docs/verdicts.md, corrected for the number of baselines and conditions; undecided "
    "where what was tuned at an edge of its range would lose. Epsilon covers no search. Seconds: "
    "of a run, on the machine that made it."
)


def render(entry: Entry, outcomes: Sequence[Outcome]) -> str:
    """The page as Markdown: the same records give the same text."""
    protocol = entry.protocol
    baselines = protocol.baselines()
    by_label = dict(zip(protocol.target.labels, outcomes, strict=True))
    compared = _compared(entry, by_label, baselines)
    parts: list[Block] = []
    for label, outcome in by_label.items():
        of_label = {row: pair for (under, row), pair in compared.items() if under == label}
        grid = _grid(entry, label, outcome, baselines[label], of_label)
        parts += [grid, [*_choice(outcome)]]
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
) -> dict[tuple[str, str], tuple[PairedTest, Verdict]]:
    """The test and the verdict by condition and baseline, judged together.

    What was tuned at an edge of the range that it tried loses to nothing.
    """
    metric, undertuned = entry.protocol.rules.metric, entry.protocol.target.undertuned
    tests = {
        (label, row): _test(outcomes[label].tested, records, metric)
        for label, rows in baselines.items()
        for row, records in rows.items()
    }
    found = {}
    for (place, test), verdict in zip(tests.items(), judge([*tests.values()]), strict=True):
        loser_is_undertuned = {
            BETTER: row_name(*place) in undertuned,
            WORSE: bool(_at_edge(outcomes[place[0]])),
        }
        found[place] = test, UNDECIDED if loser_is_undertuned.get(verdict) else verdict
    return found


def _protocol(entry: Entry) -> str:
    rules, seeds = entry.protocol.rules, entry.protocol.seeds
    return (
        f"{rules.trials} random trials of the method's search space on a validation split (seed "
        f"{rules.trial_seed}), the best {rules.finalists} again with {rules.final_seeds} other "
        f"seeds, by rule `{rules.rule}`; then the test set, with {len(seeds)} seeds. The baselines "
        "went the same way."
    )


def _test(ours: Sequence[Record], others: Sequence[Record], metric: str) -> PairedTest:
    """The test of the entry against a baseline, in the metric's unit; positive is better."""
    one, other = (Runs(tuple(records)) for records in (ours, others))
    theirs, mine = other.by_seed(metric), one.by_seed(metric)
    known = parse_name(metric)
    margin = known.margin.at(statistics.fmean(theirs.values()))
    test = paired_test([mine[seed] - theirs[seed] for seed in mine if seed in theirs], margin)
    return test.scaled(known.metric.sign if known.metric else 1)


def _grid(
    entry: Entry,
    label: str,
    outcome: Outcome,
    baselines: Mapping[str, Sequence[Record]],
    compared: Mapping[str, tuple[PairedTest, Verdict]],
) -> Grid:
    """A line for the entry and for each baseline, the best mean first."""
    name = entry.protocol.rules.metric
    metric = parse_name(name).metric
    assert metric
    lines = [(f"{method_name(entry.name)}, the entry", Runs(outcome.tested), NO_VALUE, NO_VALUE)]
    for row, records in baselines.items():
        test, verdict = compared[row]
        difference = interval_text(test, metric.digits)
        lines.append((method_name(row), Runs(tuple(records)), difference, verdict))
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


def _choice(outcome: Outcome) -> Iterator[str]:
    """What was chosen, and which of it lies at an edge of what was tried."""
    settings = shlex.join(override_texts(outcome.chosen.values))
    yield f"Chosen: `{settings}`, trial {outcome.chosen.number}."
    yield from _at_edge(outcome)


def _at_edge(outcome: Outcome) -> list[str]:
    return at_edge(outcome.chosen, outcome.trials, outcome.request.space.ranges)
