"""A comparison over several tasks as the page draws it."""

from collections.abc import Mapping

from dpbench.comparison.dashboard.answer import answer
from dpbench.comparison.dashboard.board_files import csv_fields
from dpbench.comparison.dashboard.board_view import (
    RANKS,
    ViewCell,
    budget_text,
    focus,
    forest_cell,
    metric_text,
    ranks_cell,
    verdict_text,
    weight,
    whiskers,
)
from dpbench.comparison.dashboard.values import DASH, delta_text, gap_text, with_unit
from dpbench.comparison.tables.grid import Grid, counted, csv_text, number
from dpbench.comparison.tables.page import tabular


def across_view(board: dict, names: Mapping[str, str]) -> dict:
    """A board of `across` as the page's JSON, like that of `board_view`."""
    count = counted(len(board["rows"]), "method")
    budget = f"{budget_text(board)}, {counted(len(board['facets']), 'task')}, {count}"
    head = [
        *("ranks", "method", metric_text(board)),
        *(f"minus {names[board['baseline']]}", "verdict", "mean rank", *board["facets"]),
    ]
    rows = [_cells(row, board, names) for row in board["rows"]]
    return {
        "board": board["facet"],
        "facets": board["facets"],
        "budget": budget,
        "by": metric_text(board),
        "focus": focus(board),
        "weight": weight(len(board["rows"]) * len(board["facets"]), board),
        "answer": answer(board, names),
        "caption": f"Methods at {budget}",
        "head": head,
        "rows": [
            {
                "method": row["method"],
                "kind": "tied" if row["ranks"][0] == 1 else "",
                "cells": cells,
            }
            for row, cells in zip(board["rows"], rows, strict=True)
        ],
        "notes": _notes(board, names),
        "files": {"csv": _csv(board), "tex": _tex(board, head, rows)},
    }


def _cells(row: dict, board: dict, names: Mapping[str, str]) -> list[ViewCell]:
    percent = board["columns"][0]["percent"]
    gap = [("gap", gap_text(row["gap"][:2], percent))] if row["verdict"] else []
    return [
        ranks_cell(row["ranks"]),
        {
            "text": names[row["method"]],
            "method": row["method"],
            "run": row["id"],
            "lines": [("sub", counted(row["seeds"], "seed"))],
        },
        {"text": with_unit(row["mean"].mean, percent), "sort": row["mean"].mean, "lines": gap},
        forest_cell(row, board),
        {"text": verdict_text(row)},
        _mean_rank(row, board),
        *(
            {"text": gap_text(gap[:2], percent) if gap else DASH, "sort": gap[0] if gap else 0}
            for gap in row["gaps"]
        ),
    ]


def _mean_rank(row: dict, board: dict) -> ViewCell:
    """The mean rank, drawn with half the critical difference to either side: two methods differ
    where their bars do not overlap."""
    rank, half = row["mean_rank"], board["critical_difference"] / 2
    ends = {"mean": rank, "low": rank - half, "high": rank + half}
    words = [number(value, 1) for value in ends.values()]
    span = (1.0, float(max(2, len(board["rows"]))))
    drawn = whiskers(row["method"], ends, span, None, words)
    return {"text": words[0], "whiskers": drawn, "sort": rank}


def _notes(board: dict, names: Mapping[str, str]) -> list[str]:
    count, distance = len(board["facets"]), board["critical_difference"]
    return [
        f"Means over {', '.join(board['facets'])}. Differences to {names[board['baseline']]} are "
        "paired by seed, and by task in the columns on the right.",
        RANKS.format(" on these tasks"),
        f"The critical difference of mean ranks is {number(distance, 1)} (Nemenyi's test, 95%): "
        f"with {count} tasks, methods whose bars around their mean ranks overlap may have any "
        "order on other tasks.",
    ]


def _csv(board: dict) -> str:
    head = ("data", "delta", "method", "first_rank", "last_rank", "mean_rank", "seeds", "verdict")
    parts = ("difference", "difference_half", "difference_n")
    lines = (
        csv_fields(
            [
                *(board["facet"], board["delta"], row["method"], *row["ranks"]),
                *(row["mean_rank"], row["seeds"], row["verdict"]),
                *(row["gap"] or [None] * len(parts)),
                *(field for gap in row["gaps"] for field in gap or [None] * len(parts)),
            ]
        )
        for row in board["rows"]
    )
    data = ("all", *board["facets"])
    return csv_text((*head, *(f"{name}, {part}" for name in data for part in parts)), lines)


def _tex(board: dict, head: list[str], rows: list[list[ViewCell]]) -> str:
    """The table of the page without its pictures."""
    picture = 3
    texts = [
        [" ".join([cell["text"], *(text for kind, text in cell.get("lines", ()) if kind == "gap")])
         for i, cell in enumerate(row) if i != picture]
        for row in rows
    ]  # fmt: skip
    caption = f"{', '.join(board['facets'])}, δ = {delta_text(board['delta'])}."
    heads = tuple(text for i, text in enumerate(head) if i != picture)
    return tabular(caption, Grid("", heads, tuple(map(tuple, texts))))
