"""`dpbench findings [results_dir=] [out=]`: what all tables and runs of a folder say together."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import get_args

from dpbench.comparison.compare.claims import NOT_RUN, ON_AVERAGE
from dpbench.comparison.compare.verdict import Verdict, reasoned
from dpbench.comparison.dashboard.answers import EPSILONS, KINDS, answers, as_chosen
from dpbench.comparison.dashboard.contests import Contest
from dpbench.comparison.dashboard.summarise import summary_of
from dpbench.comparison.dashboard.tables import pages, places
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.data import ClaimData, RowData, TableData
from dpbench.comparison.tables.edition import OURS
from dpbench.comparison.tables.grid import (
    NO_VALUE,
    Grid,
    grid_of,
    number,
    range_text,
    signed,
    tally,
)
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.comparison.tables.verdict import FAILS, FORMS
from dpbench.runs.config.commands import FindingsCommand
from dpbench.runs.config.search_path import method_name, options
from dpbench.runs.records.collect import name_left_out
from dpbench.system.arguments import read
from dpbench.system.errors import counted, print_message
from dpbench.system.files import check_replaceable
from dpbench.system.grouping import grouped

INTRODUCTION = (
    "A cell names the methods that are shown to be better than DP-SGD on some task, and worse on "
    "none, beside a DP-SGD whose settings a search chose. A task counts if training without "
    "privacy, or another method, is shown to be more than a margin ahead of DP-SGD there: "
    "elsewhere nobody can win. Rules: docs/verdicts.md."
)
ON_METHODS = (
    "Beside DP-SGD at one budget, on the tasks that count; and the claims of papers on the method."
)
ON_CLAIMS = (
    "The claims of papers, without those of ours. Effect: in margins of the metric, positive where "
    "it supports the claim, with its 95% interval (seeds). Tuning: the trials of the searches "
    "behind the rows; none where a paper gives the settings. To decide: the seeds that would, in "
    "four of five repetitions, if effect and spread are the true ones, and the hours of the "
    "missing runs."
)
ON_PRINT = (
    "Printed numbers at the paper's scale, each counted once; and how many of those reproduced "
    "neither 0 nor the mean of their column would reproduce: only these say something."
)


def findings(arguments: Sequence[str]) -> str:
    """Write the page; returns it as Markdown.

    Raises UserError for an unknown argument, and for a folder without records.
    """
    values = read("findings", FindingsCommand, arguments)
    folder, out = values.results_dir, values.out
    check_replaceable(out)
    tables, damaged = pages(folder)
    summary, unreadable = summary_of(folder, lambda config: "", places(tables))
    name_left_out([*unreadable, *damaged])
    made = page(tables, summary.contests, shlex.join(["dpbench", "findings", *arguments]))
    made.write(out, setting="out")
    print_message(f"written: {out}")
    return made.markdown


def page(tables: Mapping[str, TableData], contests: Sequence[Contest], command: str) -> Page:
    """What tables, by the names of their files, and contests say together; and what makes it."""
    private = [as_chosen(one) for one in contests if one.budget and one.is_searched]
    blocks: list[PageBlock] = [
        _answers(contests),
        INTRODUCTION,
        _methods(tables, private),
        ON_METHODS,
        _claims(tables),
        ON_CLAIMS,
        _printed(tables),
        ON_PRINT,
    ]
    return Page("Findings", blocks, command)


def _answers(contests: Iterable[Contest]) -> Grid:
    of_kinds = grouped((one.kind, one.text) for one in answers(contests))
    rows = tuple((KINDS[kind], *texts) for kind, texts in of_kinds.items())
    return Grid("What to use", ("data", *(f"ε {e:g}" for e in EPSILONS)), rows)


def _methods(tables: Mapping[str, TableData], contests: Iterable[Contest]) -> Grid:
    open_ = [one for one in contests if not one.no_headroom]
    verdicts = grouped((m, j.verdict) for one in open_ for m, j in one.judged.items())
    about = grouped((c.method, _word(c)) for _, c in _of_papers(tables))
    lines = [
        (
            method_name(method),
            *(str(Counter(verdicts.get(method, ()))[word]) for word in WORDS),
            tally(about.get(method, ()), FORMS) or NO_VALUE,
        )
        for method in sorted({*verdicts, *about} & {*options("method")})
    ]
    return Grid("Methods", ("method", *WORDS, "claims"), tuple(lines))


WORDS: tuple[Verdict, ...] = get_args(Verdict)


def _of_papers(tables: Mapping[str, TableData]) -> Iterator[tuple[TableData, ClaimData]]:
    for table in tables.values():
        yield from ((table, c) for c in table.claims if not c.source.startswith(OURS))


def _word(claim: ClaimData) -> str:
    return claim.verdict.removesuffix(ON_AVERAGE)


def _claims(tables: Mapping[str, TableData]) -> Grid:
    columns: dict[str, Callable[[tuple[TableData, ClaimData]], str]] = {
        "source": lambda pair: f"{pair[1].source}, {pair[0].name}",
        "method": lambda pair: pair[1].method or NO_VALUE,
        "claim": lambda pair: pair[1].statement,
        "effect": lambda pair: _effect(pair[1]),
        "headroom": lambda pair: _headroom(pair[1]),
        "tuning": lambda pair: _tuning(*pair),
        "verdict": lambda pair: reasoned(pair[1].verdict, pair[1].reason),
        "to decide": lambda pair: _cost(*pair),
    }
    pairs = sorted(_of_papers(tables), key=lambda pair: _place(pair[1]))
    return grid_of("Claims of papers", columns, pairs)


def _place(claim: ClaimData) -> tuple:
    """What fails first, then in the order of the verdicts, what was not run last."""
    order = [FAILS, *(word for word in FORMS if word != FAILS)]
    return order.index(_word(claim)), claim.source


def _effect(claim: ClaimData) -> str:
    found = claim.effect
    if found is None or found.mean is None:
        return NO_VALUE
    ends = (NO_VALUE if end is None else signed(end, 1) for end in (found.low, found.high))
    return f"{signed(found.mean, 1)} [{', '.join(ends)}] ({found.n})"


def _headroom(claim: ClaimData) -> str:
    """`shown`, or in how many comparisons there was nothing to win."""
    reasons = Counter(c.headroom for c in claim.comparisons if c.verdict != NOT_RUN)
    without = {reason: n for reason, n in reasons.items() if reason}
    if not reasons:
        return NO_VALUE
    total = reasons.total()
    return ", ".join(f"{reason} ({n} of {total})" for reason, n in without.items()) or "shown"


def _rows(table: TableData, claim: ClaimData) -> list[RowData]:
    names = {
        name
        for c in claim.comparisons
        for name in (row_name(c.condition, c.row), row_name(c.condition, c.than), c.than)
    }
    return [row for row in table.rows if row_name(row.condition, row.method) in names]


def _tuning(table: TableData, claim: ClaimData) -> str:
    rows = _rows(table, claim)
    trials = {row.tuning.trials for row in rows if row.tuning.trials is not None}
    flaws = Counter(row.tuning.flaw for row in rows if row.tuning.flaw)
    ends = [f"{range_text(min(trials), max(trials))} trials"] if trials else []
    return "; ".join([*ends, *(f"{n} {flaw}" for flaw, n in flaws.items())]) or NO_VALUE


def _cost(table: TableData, claim: ClaimData) -> str:
    """`14 seeds, 0.3 h`."""
    if claim.seeds is None or claim.effect is None:
        return NO_VALUE
    missing = max(0, claim.seeds - claim.effect.n)
    hours = missing * sum(row.seconds or 0.0 for row in _rows(table, claim)) / 3600
    return f"{counted(claim.seeds, 'seed')}, {number(hours, None)} h"


def _printed(tables: Mapping[str, TableData]) -> Grid:
    lines = [
        (name, *map(str, astuple(table.printed)))
        for name, table in tables.items()
        if table.printed and table.printed.printed
    ]
    head = ("table", "printed", "reproduced", "beyond constants")
    return Grid("Reproduced", head, tuple(lines))
