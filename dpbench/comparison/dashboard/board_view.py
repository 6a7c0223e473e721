"""A board as the page draws it: a sentence, a table whose cells are texts, notes, and its files."""

import math
from collections.abc import Mapping, Sequence

from dpbench.comparison.compare.verdict import BETTER, EQUIVALENT, UNDECIDED, WORSE, reasoned
from dpbench.comparison.dashboard.values import (
    DASH,
    arrowed,
    bound_text,
    delta_text,
    gap_text,
    value_text,
    with_unit,
)
from dpbench.comparison.tables.grid import (
    NO_VALUE,
    Grid,
    counted,
    csv_text,
    epsilon_text,
    number,
    tally,
)
from dpbench.comparison.tables.page import tabular
from dpbench.learning.metrics.registry import metric_of, parse_name
from dpbench.learning.metrics.students_t import CONFIDENCE
from dpbench.runs.records.epsilon import rounded_up

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
    first = board["columns"][:1]
    return arrowed(first[0]["label"], first[0]["better"]) if first else DASH


def budget_text(board: dict) -> str:
    if board["low"] is None:
        return "no epsilon"
    return f"{_epsilons(board)} at δ = {delta_text(board['delta'])}"


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
    if ranks is None:
        return {"text": DASH, "sort": None}
    first, last = ranks
    return {"text": _ends(first, last), "sort": first + last / 1000}


def _method(row: dict, names: Mapping[str, str]) -> ViewCell:
    chosen = f"{row['chosen']}, {counted(row['seeds'], 'seed')}"
    return {
        "text": names[row["method"]],
        "method": row["method"],
        "run": row["id"],
        "lines": [("sub", chosen)],
    }


def _metric(cell: dict | None, percent: bool, row: dict) -> ViewCell:
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
    return reasoned(row["verdict"] or "", row["reason"]) or DASH


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
    has_epsilon = not isinstance(row["epsilon"], str)
    lines = [("sub", row["guarantee"])] if has_epsilon else []
    if audit := row["audit"]:
        kind = "sub" if audit["refuted"] is None else "sub alarm"
        lines.append((kind, f"audit: ≥ {bound_text(audit)}"))
    return {
        "text": epsilon_text(row["epsilon"], ""),
        "sort": row["epsilon"] if has_epsilon else None,
        "lines": lines,
    }


def _cost(row: dict) -> ViewCell:
    if row["ms"] is None:
        return {"text": DASH, "sort": None}
    mean, *ends = row["ms"]
    range_ = _ends(*(number(end, None) for end in ends))
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


def _epsilons(board: dict) -> str:
    """`ε 3.00`, `ε 2.90 to 3.33`."""
    return f"ε {_ends(rounded_up(board['low']), rounded_up(board['high']))}"


def _ends(low: object, high: object) -> str:
    """`2`, `2 to 7`."""
    return " to ".join(map(str, dict.fromkeys((low, high))))


def answer(board: dict, names: Mapping[str, str]) -> str:
    """A board as a sentence to repeat, "" without a baseline. names: of methods, for display."""
    if board["baseline"] is None or not board["columns"]:
        return ""
    baseline, metric = names[board["baseline"]], board["columns"][0]["name"]
    at = "" if board["high"] is None else f"At {_epsilons(board)}, "
    judged = [row for row in board["rows"] if row["verdict"]]
    label = board["columns"][0]["label"]
    where = f"{at}{board['facet']}{_seeds(judged)}, by {label}"
    found = [row["verdict"] for row in judged]
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


def _seeds(judged: Sequence[dict]) -> str:
    """The number of seeds that the verdicts of rows are by, each with a gap; "" without rows."""
    numbers = {row["gap"][2] for row in judged}
    if not numbers:
        return ""
    return f", {_ends(min(numbers), max(numbers))} seed{'' if numbers == {1} else 's'}"


COPIED = ("method", "chosen", "seeds", "diverged", "standing", "epsilon", "guarantee")
"""What a line has of a row as it is."""

ENDS = ("mean", "low", "high")
GAP = ("difference", "difference_half", "difference_n")


def board_csv(board: dict) -> str:
    """One line per method, its metrics in the units of records, 0.866 for 86.6 %; empty where there
    is no number. Differences are to the board's baseline, paired by seed."""
    copied = (*COPIED[:1], "setting", *COPIED[2:])
    metrics = (f"{c['name']}, {part}" for c in board["columns"] for part in (*ENDS, *GAP))
    head = ("data", "delta", "first_rank", "last_rank", *copied, "ms_per_step", *metrics)
    return csv_text(head, (_csv_line(board, row) for row in board["rows"]))


def _csv_line(board: dict, row: dict) -> list[str]:
    fields = [board["facet"], board["delta"], *(row["ranks"] or (None, None))]
    fields += (row[key] for key in COPIED)
    fields.append(row["ms"] and row["ms"][0])
    for cell in row["cells"]:
        values = cell or {}
        fields += [values.get(end) for end in ENDS]
        fields += values.get("gap") or [None] * len(GAP)
    return ["" if field is None else str(field) for field in fields]


def board_tex(board: dict, names: Mapping[str, str]) -> str:
    """Method, metrics with their intervals, the difference of the first one, and epsilon.

    names: of methods, for display.
    """
    columns, baseline = board["columns"], names.get(board["baseline"])
    labels = [f"{c['label']} (%)" if c["percent"] else c["label"] for c in columns]
    if labels and baseline:
        labels.insert(1, f"{labels[0]}, difference to {baseline}")
    rows = []
    for row in board["rows"]:
        cells = zip(row["cells"], columns, strict=True)
        texts = [_mean(cell, column["percent"]) for cell, column in cells]
        if texts and baseline:
            gap = row["gap"]
            texts.insert(1, gap_text(gap[:2], columns[0]["percent"]) if gap else NO_VALUE)
        rows.append((names[row["method"]], *texts, epsilon_text(row["epsilon"], "")))
    delta = "" if board["delta"] is None else f", δ = {delta_text(board['delta'])}"
    return tabular(f"{board['facet']}{delta}.", Grid("", ("method", *labels, "ε"), tuple(rows)))


def _mean(cell: dict | None, percent: bool) -> str:
    if cell is None:
        return NO_VALUE
    mean, *ends = (value_text(cell[end], percent) for end in ENDS)
    return mean if cell["low"] is None else f"{mean} [{', '.join(ends)}]"
