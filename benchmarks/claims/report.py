"""`dpbench reproduce recount`: the registry with a verdict on every row."""

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.grid import NO_VALUE, Grid, grid_of, tally
from dpbench.comparison.tables.table import ResultTable
from dpbench.comparison.tables.verdict import FORMS, HOLDS
from dpbench.runs.records.epsilon import USUAL, delta_text, rounded_up
from dpbench.system.errors import UserError, counted
from dpbench.system.progress import counting

from .printed import read_printed
from .recount import (
    FOLLOWS,
    LOOSE,
    LOOSE_MARGIN,
    NOT_FOLLOWING,
    PLD_MARGIN,
    TOO_SMALL,
    UNKNOWN,
    Recount,
    recount_one,
)

RULES = (
    "RDP and PLD, rounded up, are upper bounds of what the setting spends, were its batches "
    "Poisson samples. GDP and Edgeworth (Wang et al. 2022, the expansion of second order) are "
    "approximations; '-' where an expansion gives no epsilon. *Own* is the account that the source "
    "names, as it is used there: each query on a batch of its own, and `moments` with the "
    "conversion to epsilon of 2017. *Shuffled, at most*, rounded up, is PLD without any gain from "
    "sampling, which holds for batches of a permutation and an example whose gradient is replaced "
    "by zero.",
    f"Epsilons here: {USUAL}; delta and sampler are in each line.",
    f"Too small: the printed number lies more than {PLD_MARGIN:.1%} and its rounding below the "
    "smaller of RDP and PLD, by so many percent of it. Loose: more than "
    f"{LOOSE_MARGIN:.0%} above the larger, by so many percent of the smaller. Does not follow: the "
    "setting has no epsilon, for the reason given, or the account that the source names gives less "
    f"by more than {FOLLOWS:.0%}. Holds: all else. *If Poisson*: the source shuffles or does not "
    "say how it samples, and nothing is known of its own sampler but *shuffled, at most*.",
    "*verified*: the setting was read in a public copy of the source; *assumed*: some of it was "
    "not printed there; *derived*: the number follows from a printed statement and is not printed "
    "itself.",
)
WORDS = {
    HOLDS: FORMS[HOLDS],
    TOO_SMALL: (f"is {TOO_SMALL}", f"are {TOO_SMALL}"),
    LOOSE: (f"is {LOOSE}", f"are {LOOSE}"),
    NOT_FOLLOWING: (NOT_FOLLOWING, "do not follow"),
    UNKNOWN: (UNKNOWN, UNKNOWN),
}
"""The verdicts, as they read for one and for several."""

STATEMENT_HEAD = ("source", "where", "statement", "what holds", "shown by")


def _text(epsilon: float | None, write: Callable[[float], str]) -> str:
    return NO_VALUE if epsilon is None else write(epsilon)


def _given(value: float | None) -> str:
    return NO_VALUE if value is None else f"{value:.4g}"


def _nearest(epsilon: float | None) -> str:
    return _text(epsilon, "{:.2f}".format)


COLUMNS: dict[str, Callable[[Recount], str]] = {
    "claim": lambda r: r.entry.id,
    "setting": lambda r: r.entry.setting,
    "steps": lambda r: str(r.entry.steps or NO_VALUE),
    "rate": lambda r: _given(r.entry.rate),
    "noise multiplier": lambda r: _given(r.entry.noise_multiplier),
    "sampler": lambda r: r.entry.sampler,
    "delta": lambda r: delta_text(r.entry.delta, 3),
    "printed": lambda r: r.entry.printed,
    "RDP": lambda r: _text(r.rdp, rounded_up),
    "PLD": lambda r: _text(r.pld, rounded_up),
    "GDP": lambda r: _nearest(r.gdp),
    "Edgeworth": lambda r: _nearest(r.edgeworth),
    "own": lambda r: _nearest(r.own),
    "shuffled, at most": lambda r: _text(r.unamplified, rounded_up),
    "verdict": lambda r: r.ruling,
    "evidence": lambda r: r.entry.evidence,
}
WHERE: dict[str, Callable[[Recount], str]] = {
    "source": lambda r: r.entry.source,
    "where": lambda r: r.entry.where,
}
REMARKS: dict[str, Callable[[Recount], str]] = {
    "by": lambda r: r.entry.accountant,
    "note": lambda r: " ".join(filter(None, (r.reason, r.entry.note))),
}
"""What the CSV file has before and after the columns of the page."""


def recounted_epsilons(target: Target) -> dict[str, bytes]:
    """The files by suffix; nothing is trained. Raises UserError for a malformed registry."""
    path = target.published
    printed = read_printed(path)
    recounts = []
    with counting("epsilons", len(printed)) as count:
        for entry in printed:
            recounts.append(recount_one(entry))
            count()
    return _table(target, recounts, path).files(
        grid_of("", WHERE | COLUMNS | REMARKS, recounts).csv
    )


def summary(recounts: Sequence[Recount]) -> list[str]:
    """The number of printed epsilons by verdict, and those that are too small, the worst first."""
    parts = tally((item.verdict for item in recounts), WORDS)
    sentences = [f"{counted(len(recounts), 'printed epsilon')}: {parts}."]
    worst = sorted((o for o in recounts if o.verdict == TOO_SMALL), key=lambda o: -o.share)
    if worst:
        named = (f"{o.entry.id} ({o.entry.printed}, not {_text(o.pld, rounded_up)})" for o in worst)
        sentences.append(f"Too small: {', '.join(named)}.")
    return sentences


def _table(target: Target, recounts: Sequence[Recount], path: Path) -> ResultTable:
    sources = dict.fromkeys(item.entry.source for item in recounts)
    grids = [
        grid_of(source, COLUMNS, (r for r in recounts if r.entry.source == source))
        for source in sources
    ]
    return ResultTable(
        name=target.name,
        title=target.title,
        introduction=(f"{target.table.paper}. Nothing is trained.",),
        grids=(*grids, _statements(path.with_name("statements.csv"))),
        summary=tuple(summary(recounts)),
        rules=RULES,
        notes=(*_notes(recounts), *target.table.notes),
        cells=(),
        command=target.command,
    )


def _notes(recounts: Sequence[Recount]) -> Iterable[str]:
    """Each reason and each note once, after the ids of its printed epsilons."""
    ids: dict[str, list[str]] = {}
    for item in recounts:
        for text in filter(None, (item.reason, item.entry.note)):
            ids.setdefault(text, []).append(item.entry.id)
    return (f"{', '.join(names)}: {text}" for text, names in ids.items())


def _statements(path: Path) -> Grid:
    """Statements on privacy in the sources, without an epsilon, that do not hold."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    if not rows or tuple(rows[0]) != STATEMENT_HEAD:
        raise UserError(f"{path.name} must have the columns {', '.join(STATEMENT_HEAD)}.")
    return Grid("Statements without an epsilon", STATEMENT_HEAD, tuple(map(tuple, rows[1:])))
