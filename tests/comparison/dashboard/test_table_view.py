"""What a paper's table says on the page: ours, print, and the verdict."""

import pytest

from dpbench.comparison.dashboard.table_view import reproduced, table_view

EMPTY = {"row": "dpsgd", "column": "a", "ours": "", "spread": "", "n": "", "published": "1.5",
         "published_spread": "", "verdict": "not run"}  # fmt: skip


def viewed(**cell):
    table = {
        "title": "t", "command": None,
        "claims": [{"statement": "s", "verdict": "holds", "reason": ""}],
        "rows": ["dpsgd"], "columns": ["a"], "cells": [EMPTY | cell],
        "verdicts": {"differs": 2, "-": 3, "undecided": 1},
    }  # fmt: skip
    return table_view(table, {"dpsgd": "DP-SGD"})


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ({"ours": "nan", "n": "0", "verdict": "not run here"}, "–"),
        ({"ours": "nan", "spread": "nan", "n": "2"}, "not finite (2)"),
        ({"ours": "1.26", "spread": "nan", "n": "1"}, "1.3 (1)"),
        ({"ours": "2", "spread": "0.04", "n": "3", "published": "1.50"}, "2.00 ± 0.04 (3)"),
        ({"ours": "inf", "spread": "nan", "n": "1", "published": ""}, "inf (1)"),
        ({"ours": "1.23456", "n": "1", "published": ""}, "1.235 (1)"),
    ],
)
def test_ours_has_the_decimals_of_print_and_never_nan(cell, text):
    ((_, shown),) = viewed(**cell)["rows"]
    assert shown["lines"][0] == ("ours", text)


def test_print_stands_in_brackets_and_a_verdict_has_a_sign():
    ((head, shown),) = viewed(published_spread="0.1", verdict="reproduced")["rows"]
    assert head == {"head": "DP-SGD"}
    assert shown["lines"][1:] == [("theirs", "[1.5 ± 0.1]"), ("verdict", "✓ reproduced")]
    ((_, shown),) = viewed(published="", verdict="-")["rows"]
    assert shown["lines"][1:] == [("theirs", ""), ("verdict", "")]


def test_verdicts_are_counted_and_claims_marked():
    view = viewed()
    assert view["tally"] == [(2, "bad", "2 differ"), (1, "near", "1 undecided")]
    assert view["claims"] == [("good", "✓ holds", "s")]
    assert view["run"]


def test_only_judged_numbers_count_as_reproduced_or_not():
    tables = [{"verdicts": {"reproduced": 2, "not judged": 9}}, {"verdicts": {"differs": 1}}]
    assert reproduced(tables) == (2, 3)
