"""The summary of a table's verdicts, as the sentences that its page begins with."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dpbench.tables.cells import Cell
from dpbench.tables.claim_grids import count_verdicts
from dpbench.tables.comparisons import FAILS, HOLDS, JudgedClaim
from dpbench.tables.constants import ConstantBaseline
from dpbench.tables.verdict import CLOSE, DIFFERS, REPRODUCED, UNDECIDED

JUDGED = (REPRODUCED, CLOSE, DIFFERS, UNDECIDED)


def claims_line(judged: Sequence[JudgedClaim]) -> str:
    """`Claims of 6: 5 hold, 1 does not hold (ece).`, with the names of those that do not."""
    if not judged:
        return ""
    failed = [j.claim.name for j in judged if j.verdict == FAILS]
    names = f" ({', '.join(failed)})" if failed else ""
    return f"Claims of {len(judged)}: {count_verdicts(j.verdict for j in judged)}{names}."


def cells_line(cells: Iterable[Cell], baselines: Sequence[ConstantBaseline]) -> str:
    """The counts of verdicts on cells, and how many cells a constant table would pass."""
    counts = Counter(cell.verdict for cell in cells)
    judged = [f"{name} {counts[name]}" for name in JUDGED if counts[name]]
    if not judged:
        return ""
    printed, zeros, means = (
        sum(getattr(b, name) for b in baselines) for name in ("printed", "zeros", "means")
    )
    return (
        f"Cells: {', '.join(judged)}. Of {printed} printed numbers a table of zeros would pass "
        f"{zeros}, one of each column's mean {means}."
    )


def order_line(counts: Mapping[str, Counter]) -> str:
    """How many pairs of rows are in the printed order, and in which columns some are reversed."""
    total = sum(counts.values(), Counter[str]())
    if not total:
        return ""
    reversed_in = [column for column, n in counts.items() if n[FAILS]]
    where = f" ({', '.join(reversed_in)})" if reversed_in else ""
    return (
        f"Order: of {total.total()} pairs that differ in print, {total[HOLDS]} are as printed, "
        f"{total[FAILS]} reversed{where}, {total.total() - total[HOLDS] - total[FAILS]} undecided."
    )
