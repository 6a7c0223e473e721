"""The summary of a table's verdicts, as the sentences that its page begins with."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dpbench.comparison.tables.cells import Cell
from dpbench.comparison.tables.claims.comparisons import JudgedClaim
from dpbench.comparison.tables.claims.grids import count_verdicts
from dpbench.comparison.tables.constants import ConstantBaseline
from dpbench.comparison.tables.grid import counted
from dpbench.comparison.tables.verdict import (
    DIFFERS,
    FAILS,
    HOLDS,
    NOT_JUDGED,
    OTHER_SCALE,
    REPRODUCED,
    UNDECIDED,
    counted_verdict,
)


def claims_line(judged: Sequence[JudgedClaim]) -> str:
    """`6 claims: 5 hold, 1 fails (ece).`, with the names of those that fail."""
    if not judged:
        return ""
    failed = [j.claim.name for j in judged if j.ruling.word == FAILS]
    counts = count_verdicts((j.ruling.word for j in judged), failed)
    return f"{counted(len(judged), 'claim')}: {counts}."


def opening(cells: Sequence[Cell]) -> str:
    """How many printed numbers are reproduced, in which rows some differ, and on how many seeds.

    Empty where nothing is printed.
    """
    printed = [c for c in cells if c.published and c.n and c.verdict != NOT_JUDGED]
    if not printed:
        return ""
    counts = Counter(cell.verdict for cell in printed)
    seeds = _range({cell.n for cell in printed})
    if counts[OTHER_SCALE]:
        return (
            f"Not the paper's runs: {len(printed)} printed numbers are shown, not judged; {seeds}."
        )
    others = f"{counts[UNDECIDED]} {UNDECIDED}" if counts[UNDECIDED] else ""
    parts = [others, _differing([cell for cell in printed if cell.verdict == DIFFERS])]
    reproduced = f"{counts[REPRODUCED]} of {len(printed)} printed numbers are reproduced"
    text = f"{', '.join(filter(None, [reproduced, *parts]))}; {seeds}."
    different = len({id(cell.published) for cell in printed})
    if different < len(printed):
        text += (
            f" The paper prints {different} different ones; variants, and columns on other data, "
            "are held against the same."
        )
    return text


def _differing(cells: Sequence[Cell]) -> str:
    """`3 differ (fairlens 2, sgd 1)`."""
    rows = Counter(cell.row for cell in cells)
    named = ", ".join(f"{row} {count}" for row, count in rows.most_common())
    counted = counted_verdict(len(cells), DIFFERS)
    return f"{counted} ({named})" if cells else f"none {DIFFERS}"


def _range(seeds: set[int]) -> str:
    low, high = min(seeds), max(seeds)
    if low == high == 1:
        return "1 seed"
    return f"{low} seeds" if low == high else f"{low} to {high} seeds"


def constants_line(baselines: Sequence[ConstantBaseline]) -> str:
    """How many printed numbers a constant table would pass."""
    if not baselines:
        return ""
    printed, zeros, means = (
        sum(getattr(b, name) for b in baselines) for name in ("printed", "zeros", "means")
    )
    return (
        f"Constants: of {printed} printed numbers, {zeros} would be reproduced if every "
        f"row had 0, and {means} if every row had its column's mean."
    )


def order_line(counts: Mapping[str, Counter]) -> str:
    """How many pairs of rows are in the printed order, and in which columns some are reversed."""
    total = sum(counts.values(), Counter[str]())
    if not total:
        return ""
    reversed_in = [column for column, n in counts.items() if n[FAILS]]
    where = f" ({', '.join(reversed_in)})" if reversed_in else ""
    return (
        f"Order: of {total.total()} pairs of rows that differ in print, {total[HOLDS]} have the "
        f"printed order and {total[FAILS]} the reverse{where}; "
        f"{total.total() - total[HOLDS] - total[FAILS]} are undecided."
    )
