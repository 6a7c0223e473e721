"""A paper's table as the page draws it: our numbers beside the printed ones, rounded alike."""

import math
from collections.abc import Mapping

from dpbench.comparison.dashboard.documents import Card, card
from dpbench.comparison.dashboard.values import DASH
from dpbench.comparison.tables.verdict_words import (
    DIFFERS,
    NOT_RUN,
    NOTHING_PUBLISHED,
    REPRODUCED,
    UNDECIDED,
    counted_verdict,
    look_of,
)

DECIMALS = 3
"""Of our numbers where nothing was printed."""

WITHOUT_COMMAND = "Made with other settings, or in part: the file name does not give the command."


def table_view(table: dict, names: Mapping[str, str]) -> Card:
    """A table as the page's card. names: of methods, for display."""
    cells = {(cell["row"], cell["column"]): _cell(cell) for cell in table["cells"]}
    verdicts = {v: n for v, n in table["verdicts"].items() if v != NOTHING_PUBLISHED}
    return card(
        table["title"],
        command=table["command"],
        run=NOT_RUN not in table["verdicts"],
        tally=[(n, look_of(v).kind, counted_verdict(n, v)) for v, n in verdicts.items()],
        claims=[(*_marked(one["verdict"]), _claim(one)) for one in table["claims"]],
        notes=() if table["command"] else (WITHOUT_COMMAND,),
        head=["", *table["columns"]],
        rows=[
            [
                {"head": names.get(row, row)},
                *(cells.get((row, column), {"text": ""}) for column in table["columns"]),
            ]
            for row in table["rows"]
        ],
    )


def reproduced(tables: list[dict]) -> tuple[int, int]:
    """How many of how many judged numbers of all tables are reproduced."""
    counts = [table["verdicts"] for table in tables]
    judged = (REPRODUCED, DIFFERS, UNDECIDED)
    done, *others = (sum(one.get(verdict, 0) for one in counts) for verdict in judged)
    return done, done + sum(others)


def _claim(claim: dict) -> str:
    """The statement, with the reason why it is undecided."""
    return f"{claim['statement']} ({claim['reason']})" if claim["reason"] else claim["statement"]


def _marked(verdict: str) -> tuple[str, str]:
    """The class of a verdict, and the verdict after its sign."""
    look = look_of(verdict)
    return look.kind, f"{look.sign} {verdict}"


def _cell(cell: dict) -> dict:
    """Ours, the printed value in brackets, and the verdict."""
    kind, verdict = _marked(cell["verdict"])
    published = _pair(cell["published"], cell["published_spread"])
    lines = [
        ("ours", _ours(cell)),
        ("theirs", f"[{published}]" if published else ""),
        ("verdict", "" if cell["verdict"] == NOTHING_PUBLISHED else verdict),
    ]
    return {"text": "", "kind": f"cell {kind}", "title": cell["verdict"], "lines": lines}


def _ours(cell: dict) -> str:
    """Our value ± spread (n), in the decimals of the printed one; where there is none, why."""
    if cell["ours"] == "" or cell["n"] == "0":
        return DASH
    runs = f" ({cell['n']})" if cell["n"] else ""
    if _is_nan(cell["ours"]):
        return f"not finite{runs}"
    printed = cell["published"]
    digits = len(printed.partition(".")[2]) if printed else DECIMALS
    value, spread = (_rounded(cell[name], digits) for name in ("ours", "spread"))
    return _pair(value, spread) + runs


def _pair(value: str, spread: str) -> str:
    return f"{value} ± {spread}" if spread else value


def _is_nan(text: str) -> bool:
    try:
        return math.isnan(float(text))
    except ValueError:
        return True


def _rounded(text: str, digits: int) -> str:
    """A number with that many decimals; "" for one that is not known."""
    return "" if text == "" or _is_nan(text) else f"{float(text):.{digits}f}"
