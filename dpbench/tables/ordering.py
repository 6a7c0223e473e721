"""Whether the methods stand in the published order, whatever the numbers are."""

import itertools
import math
from collections.abc import Iterable

from dpbench.tables.cells import Cell


def same_order(cells: Iterable[Cell]) -> tuple[int, int]:
    """Of the pairs of cells of one column, how many stand as published, and how many could.

    Pairs that tie in print, and cells without our number or a published one, are left out.
    """
    pairs = [
        (first.ours - second.ours, float(first.published.value) - float(second.published.value))
        for first, second in itertools.combinations(cells, 2)
        if first.published and second.published
    ]
    compared = [(ours, theirs) for ours, theirs in pairs if not math.isnan(ours) and theirs]
    return sum(ours * theirs > 0 for ours, theirs in compared), len(compared)
