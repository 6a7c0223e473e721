"""What a table's verdicts come to, in the few sentences that its page begins with."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dpbench.tables.cells import Cell
from dpbench.tables.comparisons import FAILS, HOLDS, JudgedClaim
from dpbench.tables.constants import Passed
from dpbench.tables.rulings import counted
from dpbench.tables.verdict import CLOSE, DIFFERS, REPRODUCED, UNDECIDED

JUDGED = (REPRODUCED, CLOSE, DIFFERS, UNDECIDED)


def claims_line(judged: Sequence[JudgedClaim]) -> str:
    """`Claims: 5 hold, 1 does not hold (ece).`, with the names of those that do not."""
    if not judged:
        return ""
    failed = [one.claim.name for one in judged if one.verdict == FAILS]
    names = f" ({', '.join(failed)})" if failed else ""
    return f"Claims of {len(judged)}: {counted(one.verdict for one in judged)}{names}."


def cells_line(cells: Iterable[Cell], passed: Sequence[Passed]) -> str:
    """How many cells are what, beside how many a table of constants would pass."""
    counts = Counter(cell.verdict for cell in cells)
    told = [f"{name} {counts[name]}" for name in JUDGED if counts[name]]
    if not told:
        return ""
    printed, zeros, means = (
        sum(values) for values in zip(*((p.printed, p.zeros, p.means) for p in passed), strict=True)
    )
    return (
        f"Cells: {', '.join(told)}. Of {printed} printed numbers a table of zeros would pass "
        f"{zeros}, one of each column's mean {means}."
    )


def order_line(counts: Mapping[str, Counter]) -> str:
    """How many pairs of rows stand as printed, and in which columns some are reversed."""
    total = sum(counts.values(), Counter[str]())
    if not total:
        return ""
    reversed_in = [column for column, n in counts.items() if n[FAILS]]
    where = f" ({', '.join(reversed_in)})" if reversed_in else ""
    return (
        f"Order: of {total.total()} pairs that print tells apart {total[HOLDS]} as printed, "
        f"{total[FAILS]} reversed{where}, {total.total() - total[HOLDS] - total[FAILS]} undecided."
    )
