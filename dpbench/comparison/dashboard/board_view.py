"""A contest as a board of the page: a sentence, a table whose cells are texts, notes, and files."""

import math
from collections.abc import Mapping, Sequence

from dpbench.comparison.compare.verdict import (
    BETTER,
    EQUIVALENT,
    UNDECIDED,
    WORSE,
    Judged,
    reasoned,
)
from dpbench.comparison.dashboard.contests import BudgetRange, Contest
from dpbench.comparison.dashboard.representative import Candidate, Group, Interval
from dpbench.comparison.dashboard.values import (
    DASH,
    arrowed,
    bound_text,
    delta_text,
    gap_text,
    metric_entry,
    value_text,
    with_unit,
)
from dpbench.comparison.tables.grid import (
    Grid,
    epsilon_text,
    number,
    range_text,
    tally,
)
from dpbench.comparison.tables.page import tabular
from dpbench.learning.metrics.derived import WORST_GROUP
from dpbench.learning.metrics.registry import metric_of, parse_name
from dpbench.learning.metrics.students_t import CONFIDENCE
from dpbench.runs.records.epsilon import rounded_up
from dpbench.system.errors import counted

STANDINGS = {
    "first": ("first", "has the best mean"),
    "tied": ("≈ first", "no method is shown to be better"),
    "behind": ("behind", "a method is shown to be better"),
    "unknown": ("one seed", "too few common seeds to compare with the first"),
    "unranked": (DASH, "has no epsilon, diverged, or was chosen by a laxer rule: no rank"),
}

RANKS = (
    "Ranks: behind the methods that are shown to be better, ahead of those shown to be worse, by "
    "all pairs, corrected for their number. Methods that share ranks are tied."
)

ViewCell = dict
"""What the page draws: `text`; `lines`, pairs of a class and a text, below it; `sort`, by which its
column sorts; `title`; `run`, which a click opens; `method`, whose symbol stands before it."""


def board_view(contest: Contest, names: Mapping[str, str]) -> dict:
    """A contest by a metric as the page's JSON, best first. names: of methods, for display.

    weight: how much it says: nothing where no method could win, else by its ranks, then by how near
    the usual epsilon it is.
    """
    budget, baseline = budget_text(contest), _baseline(contest)
    others = [c.method for c in contest.ranked if c.method != baseline]
    high = contest.budget and contest.budget.high
    far = 0.01 * abs(math.log(high / USUAL)) if high else 0.5
    caption, head = f"Methods on {contest.facet}, {budget}", _head(contest, names)
    rows = [
        {
            "method": one.method,
            "kind": contest.standing(one.method),
            "cells": _cells(one, contest, names),
        }
        for one in contest.ranked
    ]
    return {
        "board": contest.facet,
        "facets": [contest.facet],
        "budget": budget,
        "by": metric_text(contest),
        "focus": [*([baseline] if baseline else []), *others[:FOCUS]],
        "weight": (0 if contest.no_headroom else len(contest.ranks)) - far,
        "answer": answer(contest, names),
        "caption": caption,
        "head": head,
        "rows": rows,
        "tasks": [],
        "notes": _notes(contest, names),
        "files": files_of(caption, head, rows),
    }


def files_of(caption: str, head: Sequence[str], rows: Sequence[dict]) -> dict[str, str]:
    """A board's table as CSV and LaTeX by suffix: the texts of its cells."""
    lines = (tuple(cell_text(cell) for cell in row["cells"]) for row in rows)
    grid = Grid("", tuple(head), tuple(lines))
    return {"csv": grid.csv, "tex": tabular(caption, grid)}


def cell_text(cell: ViewCell) -> str:
    return " ".join(filter(None, [cell["text"], *(text for _, text in cell.get("lines", ()))]))


FOCUS = 3
"""The methods that are in colour beside the baseline, where the rest is grey."""

USUAL = 3.0
"""The epsilon of the board that is shown first, among those that say as much."""


def _baseline(contest: Contest) -> str:
    return contest.baseline.method if contest.baseline else ""


def _label(metric: str) -> str:
    return "worst group" if metric == WORST_GROUP else metric_entry(metric)["label"]


def _percent(metric: str) -> bool:
    return metric_of(metric).unit == "percent"


def _arrowed(metric: str) -> str:
    return arrowed(_label(metric), metric_of(metric).better)


def metric_text(contest: Contest) -> str:
    return _arrowed(contest.drawn) if contest.drawn else DASH


def budget_text(contest: Contest) -> str:
    if (budget := contest.budget) is None:
        return "no epsilon"
    return f"{_epsilons(budget)} at δ = {delta_text(budget.delta)}"


def _head(contest: Contest, names: Mapping[str, str]) -> list[str]:
    first, *metrics = [*map(_arrowed, contest.columns)] or [DASH]
    picture = f"minus {names[_baseline(contest)]}" if contest.baseline else "interval"
    return ["#", "method", first, picture, "significance", *metrics, "ε", "ms per step"]


def _cells(one: Candidate, contest: Contest, names: Mapping[str, str]) -> list[ViewCell]:
    first, *metrics = [_metric(one, name, contest) for name in contest.columns] or [{"text": DASH}]
    return [
        ranks_cell(contest.ranks.get(one.method)),
        _method(one, names),
        first,
        forest_cell(one.method, contest),
        _standing(one.method, contest),
        *metrics,
        _epsilon(one.group),
        _cost(one.group),
    ]


def ranks_cell(ranks: tuple[int, int] | None) -> ViewCell:
    if ranks is None:
        return {"text": DASH, "sort": None}
    first, last = ranks
    return {"text": range_text(first, last), "sort": first + last / 1000}


def _method(one: Candidate, names: Mapping[str, str]) -> ViewCell:
    chosen = f"{one.how}, {counted(len(one.group.runs), 'seed')}"
    return {
        "text": names[one.method],
        "method": one.method,
        "run": one.group.first.row["id"],
        "lines": [("sub", chosen)],
    }


def _metric(one: Candidate, metric: str, contest: Contest) -> ViewCell:
    if (interval := contest.intervals.get((one.method, metric))) is None:
        lost = f"{one.group.diverged} of {len(one.group.runs)} diverged"
        return {"text": lost if one.group.diverged else DASH, "sort": None}
    percent, over = _percent(metric), interval.over
    ends = " to ".join(value_text(end, percent) for end in (interval.low, interval.high))
    lines = [("sub", ends if over else "no interval")]
    if gap := contest.gaps.get((one.method, metric)):
        lines.append(("gap", gap_text(gap, percent)))
    return {
        "text": with_unit(interval.mean, percent),
        "sort": interval.mean,
        "title": f"{CONFIDENCE:.0%} interval over {over}" if over else "one seed",
        "lines": lines,
    }


def forest_cell(method: str, contest: Contest) -> ViewCell:
    if (interval := contest.forest(method)) is None:
        return {"text": "", "sort": None}
    return {"text": "", "whiskers": _whiskers(method, interval, contest), "sort": interval.mean}


def _whiskers(method: str, interval: Interval, contest: Contest) -> dict:
    """A mean and its interval as paths in a picture of 120 x 26, and in words.

    An end is a bar, or an arrow where the interval leaves the axis; a line stands at no difference.
    """
    low, high = contest.span
    words = [with_unit(value, _percent(contest.drawn)) for value in interval[:3]]

    def place(value: float) -> float:
        share = min(1.0, max(0.0, (value - low) / (high - low or 1)))
        return round(10 + 100 * share, 1)

    def end(value: float) -> str:
        back = 4 if value < low else -4 if value > high else 0
        return f"M{place(value) + back} 9L{place(value)} 13l{back} 4"

    ends = [value for value in (interval.low, interval.high) if value is not None]
    line = f"M{place(ends[0])} 13H{place(ends[1])}" if ends else ""
    return {
        "method": method,
        "mean": place(interval.mean),
        "interval": line + "".join(map(end, ends)),
        "axis": "M0 13h120" + (f"M{place(0.0)} 0v26" if contest.baseline else ""),
        "label": f"{words[0]}, interval from {words[1]} to {words[2]}",
    }


def reason_of(judged: Judged | None) -> str:
    """Why no verdict follows, and what is said beside it."""
    return ", ".join(filter(None, judged[2:])) if judged else ""


def verdict_text(judged: Judged | None) -> str:
    return reasoned(judged.verdict, reason_of(judged)) if judged else DASH


def _standing(method: str, contest: Contest) -> ViewCell:
    standing, judged = contest.standing(method), contest.judged.get(method)
    text, title = STANDINGS[standing]
    verdict = [("sub", verdict_text(judged))] if judged else []
    return {
        "text": "",
        "sort": ranks_cell(contest.ranks.get(method))["sort"],
        "title": title,
        "lines": [(f"standing {standing}", text), *verdict],
    }


def _epsilon(group: Group) -> ViewCell:
    has_epsilon = not isinstance(group.epsilon, str)
    lines = [("sub", group.first.row["guarantee"])] if has_epsilon else []
    if audit := group.audit:
        kind = "sub" if audit["refuted"] is None else "sub alarm"
        lines.append((kind, f"audit: ≥ {bound_text(audit)}"))
    return {
        "text": epsilon_text(group.epsilon, ""),
        "sort": group.epsilon if has_epsilon else None,
        "lines": lines,
    }


def _cost(group: Group) -> ViewCell:
    if not group.milliseconds:
        return {"text": DASH, "sort": None}
    mean, *ends = group.milliseconds
    range_ = range_text(*(number(end, None) for end in ends))
    return {
        "text": number(mean, None),
        "sort": mean,
        "title": group.first.row["machine"],
        "lines": [("sub", range_)] if " " in range_ else [],
    }


def _notes(contest: Contest, names: Mapping[str, str]) -> list[str]:
    ranked, baseline = contest.ranked, _baseline(contest)
    beside = f"{names.get(baseline)}, paired by {contest.unit[0]}"
    notes = {
        f"Below each interval: the difference to {beside}.": baseline,
        RANKS: len(contest.ranks) > 1,
        "Times are of several machines or batch sizes (point at one to see which), not "
        "comparable.": len({one.group.first.row["machine"] for one in ranked}) > 1,
        f"Headroom: {contest.no_headroom}. A method that does not win here may still be better "
        "where there is more to win.": baseline and contest.no_headroom,
        "None of these runs was audited.": not any(one.group.audit for one in ranked),
        "A setting that is the best on the test set makes its method look too good; beside "
        "settings that were chosen otherwise it has no rank.": any(one.on_test for one in ranked),
    }
    return [note for note, applies in notes.items() if applies]


def _epsilons(budget: BudgetRange) -> str:
    """`ε 3.00`, `ε 2.90 to 3.33`."""
    return f"ε {range_text(rounded_up(budget.low), rounded_up(budget.high))}"


def answer(contest: Contest, names: Mapping[str, str]) -> str:
    """A board as a sentence to repeat, "" without a baseline. names: of methods, for display."""
    if not contest.baseline or not contest.drawn:
        return ""
    baseline, metric = names[_baseline(contest)], contest.drawn
    at = f"At {_epsilons(contest.budget)}, " if contest.budget else ""
    where = f"{at}{contest.facet}{_seeds(contest)}, by {_label(metric)}"
    found = [judged.verdict for judged in contest.judged.values()]
    if not found:
        return f"{where}: no other method with an epsilon can be compared with {baseline}."
    margin, known = parse_name(metric).margin, metric_of(metric)
    in_points = known.unit == "percent" and not margin.relative
    points = f" point{'' if margin.absolute == 1 else 's'}" if in_points else ""
    within = f"within {margin}{points} of it"
    words: dict[str, tuple[str, str]] = {
        BETTER: (f"is better than {baseline}", f"are better than {baseline}"),
        EQUIVALENT: (f"is {within}", f"are {within}"),
        WORSE: ("is worse", "are worse"),
        UNDECIDED: ("is undecided", "are undecided"),
    }
    none = "" if BETTER in found else f"none is better than {baseline}, "
    return f"{where}: of {counted(len(found), 'other method')}, {none}{tally(found, words)}."


def _seeds(contest: Contest) -> str:
    numbers = {contest.gaps[method, contest.drawn].n for method in contest.judged}
    if not numbers:
        return ""
    return f", {range_text(min(numbers), max(numbers))} {contest.unit[numbers != {1}]}"
