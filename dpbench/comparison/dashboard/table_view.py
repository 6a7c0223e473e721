"""A paper's table as the page draws it: our numbers beside the printed ones, rounded alike."""

from collections import Counter
from collections.abc import Iterable, Mapping

from dpbench.comparison.dashboard.documents import Card, card
from dpbench.comparison.dashboard.values import DASH
from dpbench.comparison.tables.data import CellData, ClaimData, TableData
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


def table_view(table: TableData, names: Mapping[str, str]) -> Card:
    """A table as the page's card. names: of methods, for display."""
    cells = {(cell.row, cell.column): _cell(cell) for cell in table.cells}
    columns = dict.fromkeys(cell.column for cell in table.cells)
    verdicts = Counter(cell.verdict for cell in table.cells)
    return card(
        table.title,
        command=table.command,
        run=NOT_RUN not in verdicts,
        tally=[
            (n, look_of(v).kind, counted_verdict(n, v))
            for v, n in verdicts.items()
            if v != NOTHING_PUBLISHED
        ],
        claims=[(*_marked(claim.verdict), _claim(claim)) for claim in table.claims],
        head=["", *columns],
        rows=[
            [
                {"head": names.get(row, row)},
                *(cells.get((row, column), {"text": ""}) for column in columns),
            ]
            for row in dict.fromkeys(cell.row for cell in table.cells)
        ],
    )


def reproduced(tables: Iterable[TableData]) -> tuple[int, int]:
    """How many of how many judged numbers of all tables are reproduced."""
    verdicts = Counter(cell.verdict for table in tables for cell in table.cells)
    done, *others = (verdicts[verdict] for verdict in (REPRODUCED, DIFFERS, UNDECIDED))
    return done, done + sum(others)


def _claim(claim: ClaimData) -> str:
    """The statement, with the reason why it is undecided."""
    return f"{claim.statement} ({claim.reason})" if claim.reason else claim.statement


def _marked(verdict: str) -> tuple[str, str]:
    """The class of a verdict, and the verdict after its sign."""
    look = look_of(verdict)
    return look.kind, f"{look.sign} {verdict}"


def _cell(cell: CellData) -> dict:
    """Ours, the printed value in brackets, and the verdict."""
    kind, verdict = _marked(cell.verdict)
    published = _pair(cell.published, cell.published_spread)
    lines = [
        ("ours", _ours(cell)),
        ("theirs", f"[{published}]" if published else ""),
        ("verdict", "" if cell.verdict == NOTHING_PUBLISHED else verdict),
    ]
    return {"text": "", "kind": f"cell {kind}", "title": cell.verdict, "lines": lines}


def _ours(cell: CellData) -> str:
    """Our value ± spread (n), in the decimals of the printed one; where there is none, why."""
    if not cell.n:
        return DASH
    if cell.ours is None:
        return f"not finite ({cell.n})"
    digits = len(cell.published.partition(".")[2]) if cell.published else DECIMALS
    spread = "" if cell.spread is None else f"{cell.spread:.{digits}f}"
    return f"{_pair(f'{cell.ours:.{digits}f}', spread)} ({cell.n})"


def _pair(value: str, spread: str) -> str:
    return f"{value} ± {spread}" if spread else value
