"""A board as CSV and LaTeX."""

import csv
import io
import math

import pytest

from dpbench.comparison.dashboard.board_view import board_csv, board_tex
from tests.comparison.dashboard.test_boards import on_boards, seeds
from tests.latex import assert_compiles

NAMES = {"dpsgd": "DP-SGD", "dpsgd_f": "DPSGD-F & more", "sgd": "SGD"}


@pytest.fixture(scope="module")
def board(record_of):
    records = [
        *seeds(record_of, "dpsgd", (0.80, 0.82)),
        *seeds(record_of, "dpsgd_f", (0.83, 0.85)),
        *seeds(record_of, "sgd", (0.95,), epsilon=math.inf, guarantee="none"),
    ]
    return on_boards(records)[0]


def test_the_csv_has_plain_numbers_and_paired_differences(board):
    first, second, last = csv.DictReader(io.StringIO(board_csv(board)))
    assert (first["method"], first["first_rank"], float(first["test/accuracy, mean"])) == (
        "dpsgd_f", "1", 0.84,
    )  # fmt: skip
    assert float(first["test/accuracy, difference"]) == pytest.approx(0.03)
    assert float(first["test/accuracy, difference_half"]) == pytest.approx(0, abs=1e-6)
    assert (first["test/accuracy, difference_n"], second["test/accuracy, difference"]) == ("2", "")
    assert (first["epsilon"], last["last_rank"], first["delta"]) == ("2.0", "", "1e-05")
    assert "%" not in board_csv(board)


def test_the_latex_table_is_short_and_escaped(board):
    text = board_tex(board, NAMES)
    head, first, *_ = [line for line in text.splitlines() if "&" in line]
    assert head.count("&") == 4
    assert r"difference to DP-SGD" in head
    assert head.endswith(r"$\varepsilon$ \\")
    assert first.startswith(r"DPSGD-F \& more & 84.0 [71.3, 96.7] & +3.0 $\pm$ 0.0 & ")


def test_the_latex_table_compiles(board, tmp_path):
    assert_compiles(tmp_path, board_tex(board, NAMES))
