"""The sentences that a page opens with."""

from dpbench.comparison.tables.cells import TableCell
from dpbench.comparison.tables.claims.grids import count_verdicts
from dpbench.comparison.tables.published import Published
from dpbench.comparison.tables.summary import opening
from dpbench.comparison.tables.verdict import DIFFERS


def test_a_row_under_a_condition_is_named_once(toy):
    column = toy.columns[0]
    printed = Published("9", None)
    cells = [TableCell("mnist", "mnist, fair", column, 1.0, 0.1, 2, printed, DIFFERS)]
    said = "0 of 1 printed numbers are reproduced, 1 differs (mnist, fair 1); 2 seeds."
    assert opening(cells) == said


def test_claims_that_fail_are_named_beside_their_count():
    verdicts = ["holds", "fails", "undecided"]
    said = "1 holds, 1 fails (ece), 1 undecided"
    assert count_verdicts(verdicts, ["ece"]) == said
