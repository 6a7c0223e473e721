"""What to use for a kind of data at a budget: the tasks that tell methods apart, and the others.

A task is a data set with a model.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpbench.comparison.compare.verdict import BETTER, WORSE, Verdict
from dpbench.comparison.dashboard.board_view import (
    FOCUS,
    ViewCell,
    budget_text,
    files_of,
    forest_cell,
    metric_text,
    reason_of,
    verdict_text,
)
from dpbench.comparison.dashboard.contests import SAME_BUDGET, Contest
from dpbench.comparison.dashboard.values import DASH, gap_text
from dpbench.learning.metrics.derived import WORST_GROUP
from dpbench.learning.metrics.registry import metric_of
from dpbench.runs.config.search_path import method_name
from dpbench.system.errors import counted
from dpbench.system.grouping import grouped

EPSILONS = (1.0, 3.0, 8.0)

FEATURES = "public features"
KINDS = {"tabular data": "tables", "images": "images", FEATURES: FEATURES, "texts": "text"}
"""The kinds of data as they are named here."""

BY_WORST_GROUP = "accuracy of the worst group"
"""What a table says of a search by the rule `best_worst_group`."""

NO_EVIDENCE = "no evidence"
NO_SEARCH = "no search chose the settings of DP-SGD"
NOBODY_ELSE = "no other method can be compared"
NOT_RUN = "not run at this budget"


@dataclass(frozen=True)
class Answer:
    """What the contests of a kind of data say at a budget: tasks where methods can differ, the
    names of those left out by the reason, and the number of idle ones, where nothing was to be won.
    """

    kind: str
    epsilon: float
    tasks: tuple[Contest, ...]
    left_out: Mapping[str, Sequence[str]]
    idle: int

    @cached_property
    def verdicts(self) -> dict[str, list[Verdict]]:
        """The verdicts on each method, the best first."""
        judged = grouped(pair for one in self.tasks for pair in one.judged.items())
        found = {method: [one.verdict for one in all_] for method, all_ in judged.items()}

        def place(method: str) -> tuple[int, int, float]:
            gaps = [one.test.mean for one in judged[method]]
            verdicts = found[method]
            shown = verdicts.count(BETTER) - verdicts.count(WORSE)
            return -shown, -len(gaps), -math.fsum(gaps)

        return {method: found[method] for method in sorted(found, key=place)}

    @property
    def text(self) -> str:
        """`BAM (1 of 2 tasks)`; else that nobody is better than DP-SGD, or could be."""
        if not self.tasks:
            idle = f"DP-SGD; nothing to win was shown on {counted(self.idle, 'task')}"
            return idle if self.idle else NO_EVIDENCE
        winners = [
            f"{method_name(method)} ({wins} of {counted(len(verdicts), 'task')})"
            for method, verdicts in self.verdicts.items()
            if (wins := verdicts.count(BETTER)) and WORSE not in verdicts
        ]
        count = counted(len(self.verdicts), "method")
        tasks = counted(len(self.tasks), "task")
        none = f"DP-SGD; none of {count} is shown to be better on {tasks}"
        return ", ".join(winners) or none


def answers(contests: Iterable[Contest]) -> Iterator[Answer]:
    """The answers for each kind of data, at each of EPSILONS."""
    of_kinds = grouped((_kind(one), as_chosen(one)) for one in contests if one.budget)
    for kind in KINDS:
        for epsilon in EPSILONS:
            yield _answer(kind, epsilon, of_kinds.get(kind, []))


def _answer(kind: str, epsilon: float, contests: Sequence[Contest]) -> Answer:
    here = [one for one in contests if _is_at(one, epsilon)]
    left_out = grouped((why, one.facet) for one in here if (why := _why_not(one)))
    known = {one.facet for one in here}
    if others := [*dict.fromkeys(one.facet for one in contests if one.facet not in known)]:
        left_out[NOT_RUN] = others
    idle = sum(one.is_searched and bool(one.judged and one.no_headroom) for one in here)
    return Answer(kind, epsilon, tuple(o for o in here if not _why_not(o)), left_out, idle)


def _why_not(contest: Contest) -> str:
    """Why a contest cannot tell methods apart; "" if it can."""
    if not contest.is_searched:
        return NO_SEARCH
    return contest.no_headroom if contest.judged else NOBODY_ELSE


def _kind(contest: Contest) -> str:
    shared = contest.candidates[0].group.first.shared
    return FEATURES if "features.backbone" in shared else contest.kind


def as_chosen(contest: Contest) -> Contest:
    """The contest by the metric that the settings of its baseline were chosen by."""
    place = contest.baseline.place if contest.baseline else None
    by_worst = place is not None and place.row.chosen_by == BY_WORST_GROUP
    return contest.by(WORST_GROUP) if by_worst else contest


def _is_at(contest: Contest, epsilon: float) -> bool:
    assert contest.budget
    low, high = contest.budget.low, contest.budget.high
    return max(high, epsilon) <= SAME_BUDGET * min(low, epsilon)


def answer_view(answer: Answer, names: Mapping[str, str]) -> dict:
    """An answer as the page's JSON: a row for each method, a column for each task that decides.

    names: of methods, for display.
    """
    tasks = answer.tasks
    runs = {c.method: c.group.first.row["id"] for one in reversed(tasks) for c in one.candidates}
    facets = [one.facet for one in tasks]
    heads = [f"{facet}, minus {names['dpsgd']}" for facet in facets]
    rows: list[dict] = [
        {
            "method": method,
            "kind": "first" if BETTER in verdicts and WORSE not in verdicts else "",
            "cells": [
                {"text": names[method], "method": method, "run": runs[method]},
                *(gap_cell(method, one) for one in tasks),
            ],
        }
        for method, verdicts in answer.verdicts.items()
    ]
    text = f"{KINDS[answer.kind]} at ε {answer.epsilon:g}: {answer.text}."
    said = text[:1].upper() + text[1:]
    head = ("method", *heads)
    return {
        "board": KINDS[answer.kind],
        "facets": facets,
        "budget": f"ε {answer.epsilon:g}",
        "by": ", ".join(dict.fromkeys(map(metric_text, tasks))) or DASH,
        "focus": ["dpsgd", *answer.verdicts][: FOCUS + 1],
        "weight": DECIDES + len(rows) * len(tasks) if tasks else -1,
        "answer": said,
        "caption": said,
        "head": head,
        "rows": rows,
        "tasks": _tasks(answer),
        "notes": [],
        "files": files_of(said, head, rows),
    }


def gap_cell(method: str, contest: Contest) -> ViewCell:
    """The difference to the baseline with its interval, drawn and as text, and its verdict."""
    if (gap := contest.gaps.get((method, contest.drawn))) is None:
        return {"text": DASH, "sort": None}
    percent, judged = metric_of(contest.drawn).unit == "percent", contest.judged.get(method)
    verdict = f"{judged.verdict if judged else DASH}, {counted(gap.n, *contest.unit)}"
    why = reason_of(judged)
    lines = [("sub", verdict), *([("sub why", why)] if why else [])]
    return forest_cell(method, contest) | {
        "text": gap_text(gap, percent),
        "lines": lines,
        "title": verdict_text(judged),
    }


DECIDES = 1000
"""The weight of an answer by which the page may open, beside those of boards."""


def _tasks(answer: Answer) -> list[str]:
    decide = [f"{one.facet} ({budget_text(one)})" for one in answer.tasks]
    units = " or ".join(dict.fromkeys(one.unit[0] for one in answer.tasks))
    decided = f"Decided by {', '.join(decide)}. Differences are paired by {units}."
    return [
        *([decided] if decide else []),
        *(f"Left out, {why}: {', '.join(names)}." for why, names in answer.left_out.items()),
    ]
