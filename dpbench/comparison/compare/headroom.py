"""Whether there was anything to win: without headroom, no method can be shown to gain nothing."""

from collections.abc import Sequence

from dpbench.comparison.compare.side import BySeed
from dpbench.learning.metrics.paired_t import LEVEL, paired_test

NOTHING_TO_WIN = "nothing to win"
NOT_MEASURED = "headroom not measured"


def why_none(
    base: BySeed,
    not_private: Sequence[BySeed],
    others: Sequence[BySeed],
    favour: int,
    margin: float,
) -> str:
    """Why no headroom is shown above a row; "" if it is.

    It is shown if training without privacy, or the best of the other rows, is more than a margin
    ahead, corrected for being selected among its like (Bonferroni). base and rows: the quantity by
    seed; favour: 1 where larger is better, else -1.
    """
    found = [
        (ahead, LEVEL / len(rows))
        for rows in (not_private, others)
        for row in rows
        if (ahead := _ahead(base, row, favour, margin))
    ]
    if not found:
        return NOT_MEASURED
    return "" if any(_is_shown(*gaps) for gaps in found) else NOTHING_TO_WIN


def _ahead(base: BySeed, row: BySeed, favour: int, margin: float) -> list[float]:
    return [favour * (value - base[seed]) - margin for seed, value in row.items() if seed in base]


def _is_shown(gaps: list[float], level: float) -> bool:
    test = paired_test(gaps, 0.0)
    return test.mean > 0 and test.p_difference <= level
