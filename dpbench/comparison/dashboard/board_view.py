"""A board as the page draws it: a sentence, a table whose cells are texts, notes, and files."""

import math
from collections.abc import Mapping, Sequence

from dpbench.comparison.dashboard.board_files import (
    answer,
    board_csv,
    board_tex,
    epsilons_of,
)
from dpbench.comparison.dashboard.values import (
    DASH,
    arrowed,
    bound_text,
    delta_text,
    epsilon_text,
    gap_text,
    value_text,
    with_unit,
)
from dpbench.comparison.tables.grid import counted, number
from dpbench.learning.metrics.students_t import CONFIDENCE

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


def board_view(board: dict, names: Mapping[str, str]) -> dict:
    """A board as the page's JSON. names: of methods, for display.

    weight: how much it says: nothing where no method could win, else by its ranks, then by how near
    the usual epsilon it is.
    """
    budget, rows, baseline = budget_text(board), board["rows"], board["baseline"]
    others = [row["method"] for row in rows if row["method"] != baseline]
    ranked = sum(row["ranks"] is not None for row in rows)
    far = 0.01 * abs(math.log(board["high"] / USUAL)) if board["high"] else 0.5
    return {
        "board": board["facet"],
        "facets": [board["facet"]],
        "budget": budget,
        "by": metric_text(board),
        "focus": [*([baseline] if baseline else []), *others[:FOCUS]],
        "weight": (0 if board["no_headroom"] else ranked) - far,
        "answer": answer(board, names),
        "caption": f"Methods on {board['facet']}, {budget}",
        "head": _head(board, names),
        "rows": [
            {"method": row["method"], "kind": row["standing"], "cells": _cells(row, board, names)}
            for row in rows
        ],
        "tasks": [],
        "notes": _notes(board, names),
        "files": {"csv": board_csv(board), "tex": board_tex(board, names)},
    }


FOCUS = 3
"""The methods that are in colour beside the baseline, where the rest is grey."""

USUAL = 3.0
"""The epsilon of the board that is shown first, among those that say as much."""


def metric_text(board: dict) -> str:
    """The metric that a board compares by, with an arrow to where it is better."""
    first = board["columns"][:1]
    return arrowed(first[0]["label"], first[0]["better"]) if first else DASH


def budget_text(board: dict) -> str:
    if board["low"] is None:
        return "no epsilon"
    return f"{epsilons_of(board)} at δ = {delta_text(board['delta'])}"


def _head(board: dict, names: Mapping[str, str]) -> list[str]:
    metrics = [arrowed(column["label"], column["better"]) for column in board["columns"]]
    baseline = board["baseline"]
    picture = f"minus {names[baseline]}" if baseline else "interval"
    first = metrics[:1] or [DASH]
    return ["#", "method", *first, picture, "significance", *metrics[1:], "ε", "ms per step"]


def _cells(row: dict, board: dict, names: Mapping[str, str]) -> list[ViewCell]:
    pairs = zip(row["cells"], board["columns"], strict=True)
    metrics = [_metric(cell, column["percent"], row) for cell, column in pairs]
    return [
        ranks_cell(row["ranks"]),
        _method(row, names),
        *(metrics[:1] or [{"text": DASH}]),
        forest_cell(row, board),
        _standing(row),
        *metrics[1:],
        _epsilon(row),
        _cost(row),
    ]


def ranks_cell(ranks: tuple[int, int] | None) -> ViewCell:
    """The first and the last rank that a method may have: `2`, `2 to 7`."""
    if ranks is None:
        return {"text": DASH, "sort": None}
    first, last = ranks
    text = str(first) if first == last else f"{first} to {last}"
    return {"text": text, "sort": first + last / 1000}


def _method(row: dict, names: Mapping[str, str]) -> ViewCell:
    chosen = f"{row['chosen']}, {counted(row['seeds'], 'seed')}"
    return {
        "text": names[row["method"]],
        "method": row["method"],
        "run": row["id"],
        "lines": [("sub", chosen)],
    }


def _metric(cell: dict | None, percent: bool, row: dict) -> ViewCell:
    """The mean, its interval, and the difference to the baseline."""
    if cell is None:
        lost = f"{row['diverged']} of {row['seeds']} diverged"
        return {"text": lost if row["diverged"] else DASH, "sort": None}
    ends = " to ".join(value_text(cell[end], percent) for end in ("low", "high"))
    lines = [("sub", ends if cell["over"] else "no interval")]
    if cell["gap"]:
        lines.append(("gap", gap_text(cell["gap"][:2], percent)))
    return {
        "text": with_unit(cell["mean"], percent),
        "sort": cell["mean"],
        "title": f"{CONFIDENCE:.0%} interval over {cell['over']}" if cell["over"] else "one seed",
        "lines": lines,
    }


def forest_cell(row: dict, board: dict) -> ViewCell:
    """The difference to the baseline with its interval, drawn."""
    if (forest := row["forest"]) is None:
        return {"text": "", "sort": None}
    percent = board["columns"][0]["percent"]
    zero = 0.0 if board["baseline"] else None
    words = [with_unit(forest[part], percent) for part in ("mean", "low", "high")]
    drawn = whiskers(row["method"], forest, board["span"], zero, words)
    return {"text": "", "whiskers": drawn, "sort": forest["mean"]}


def gap_cell(row: dict | None, board: dict) -> ViewCell:
    """The difference to the baseline with its interval, drawn and as text, and its verdict."""
    if row is None or row["gap"] is None:
        return {"text": DASH, "sort": None}
    gap, seeds = gap_text(row["gap"][:2], board["columns"][0]["percent"]), row["gap"][2]
    verdict = f"{row['verdict'] or DASH}, {counted(seeds, 'seed')}"
    lines = [("sub", verdict), *([("sub why", row["reason"])] if row["reason"] else [])]
    return forest_cell(row, board) | {"text": gap, "lines": lines, "title": verdict_text(row)}


def cell_text(cell: ViewCell) -> str:
    """A cell without its picture."""
    return " ".join([cell["text"], *(text for _, text in cell.get("lines", ()))])


def whiskers(
    method: str, interval: dict, span: Sequence[float], zero: float | None, words: Sequence[str]
) -> dict:
    """A mean and its interval as paths in a picture of 120 x 26, and in words.

    An end is a bar, or an arrow where the interval leaves the axis. span: the ends of the axis.
    zero: where a line stands, if one does. words: mean, low and high.
    """
    low, high = span

    def place(value: float) -> float:
        share = min(1.0, max(0.0, (value - low) / (high - low or 1)))
        return round(10 + 100 * share, 1)

    def end(value: float) -> str:
        back = 4 if value < low else -4 if value > high else 0
        return f"M{place(value) + back} 9L{place(value)} 13l{back} 4"

    ends = [value for value in (interval["low"], interval["high"]) if value is not None]
    line = f"M{place(ends[0])} 13H{place(ends[1])}" if ends else ""
    return {
        "method": method,
        "mean": place(interval["mean"]),
        "interval": line + "".join(map(end, ends)),
        "axis": "M0 13h120" + ("" if zero is None else f"M{place(zero)} 0v26"),
        "label": f"{words[0]}, interval from {words[1]} to {words[2]}",
    }


def verdict_text(row: dict) -> str:
    """`worse`, `undecided: tuned at the edge of its range`."""
    return ": ".join(filter(None, (row["verdict"], row["reason"]))) or DASH


def _standing(row: dict) -> ViewCell:
    text, title = STANDINGS[row["standing"]]
    verdict = [("sub", verdict_text(row))] if row["verdict"] else []
    return {
        "text": "",
        "sort": ranks_cell(row["ranks"])["sort"],
        "title": title,
        "lines": [(f"standing {row['standing']}", text), *verdict],
    }


def _epsilon(row: dict) -> ViewCell:
    """Epsilon, its guarantee, and the lower bound that an audit has shown."""
    has_epsilon = not isinstance(row["epsilon"], str)
    lines = [("sub", row["guarantee"])] if has_epsilon else []
    if audit := row["audit"]:
        kind = "sub" if audit["refuted"] is None else "sub alarm"
        lines.append((kind, f"audit: ≥ {bound_text(audit)}"))
    return {
        "text": epsilon_text(row["epsilon"]),
        "sort": row["epsilon"] if has_epsilon else None,
        "lines": lines,
    }


def _cost(row: dict) -> ViewCell:
    """The mean time of a step, and the range over runs."""
    if row["ms"] is None:
        return {"text": DASH, "sort": None}
    mean, *ends = row["ms"]
    range_ = " to ".join(dict.fromkeys(number(end, None) for end in ends))
    return {
        "text": number(mean, None),
        "sort": mean,
        "title": row["machine"],
        "lines": [("sub", range_)] if " " in range_ else [],
    }


def _notes(board: dict, names: Mapping[str, str]) -> list[str]:
    rows, baseline = board["rows"], board["baseline"]
    notes = {
        f"Below each interval: the difference to {names.get(baseline)}, paired by seed.": baseline,
        RANKS: sum(row["ranks"] is not None for row in rows) > 1,
        "Times are of several machines or batch sizes (point at one to see which), not "
        "comparable.": len({row["machine"] for row in rows}) > 1,
        f"Headroom: {board['no_headroom']}. A method that does not win here may still be better "
        "where there is more to win.": baseline and board["no_headroom"],
        "None of these runs was audited.": not any(row["audit"] for row in rows),
        "A setting that is the best on the test set makes its method look too good; beside "
        "settings that were chosen otherwise it has no rank.": any(row["on_test"] for row in rows),
    }
    return [note for note, applies in notes.items() if applies]
