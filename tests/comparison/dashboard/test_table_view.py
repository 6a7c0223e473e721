"""What a paper's table says on the page: ours, print, and the verdict."""

import pytest
from msgspec.structs import replace

from dpbench.comparison.dashboard.tables import reproduced, table_view
from dpbench.comparison.tables.data import CellData, ClaimData, TableData

EMPTY = CellData(row="dpsgd", column="a", n=0, published="1.5", verdict="not run")


def viewed(*verdicts, **cell):
    others = [replace(EMPTY, row=f"{i}", verdict=word) for i, word in enumerate(verdicts)]
    claim = ClaimData("c", "s", "", "", "", "", "holds", "", None, None, [])
    table = TableData("t", claims=[claim], cells=[replace(EMPTY, **cell), *others])
    return table_view(table, {"dpsgd": "DP-SGD"})


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ({"verdict": "not run here"}, "–"),
        ({"n": 2}, "not finite (2)"),
        ({"ours": 1.26, "n": 1}, "1.3 (1)"),
        ({"ours": 2.0, "spread": 0.04, "n": 3, "published": "1.50"}, "2.00 ± 0.04 (3)"),
        ({"ours": 1.23456, "n": 1, "published": ""}, "1.235 (1)"),
    ],
)
def test_ours_has_the_decimals_of_print_and_never_nan(cell, text):
    ((_, shown),) = viewed(**cell)["rows"]
    assert shown["lines"][0] == ("ours", text)


def test_print_stands_in_brackets_and_verdicts_are_signs_that_are_counted():
    ((head, shown),) = viewed(published_spread="0.1", verdict="reproduced")["rows"]
    assert head == {"head": "DP-SGD"}
    assert shown["lines"][1:] == [("theirs", "[1.5 ± 0.1]"), ("verdict", "✓ reproduced")]
    ((_, shown),) = viewed(published="", verdict="-")["rows"]
    assert shown["lines"][1:] == [("theirs", ""), ("verdict", "")]
    view = viewed("differs", "-", "undecided", verdict="differs")
    assert view["tally"] == [(2, "bad", "2 differ"), (1, "near", "1 undecided")]
    assert view["claims"] == [("good", "✓ holds", "s")]
    assert view["run"]
    assert not viewed()["run"]
    words = ("reproduced", "reproduced", "not judged", "differs")
    cells = [replace(EMPTY, verdict=word) for word in words]
    assert reproduced([TableData("t", cells=cells[:3]), TableData("u", cells=cells[3:])]) == (2, 3)
