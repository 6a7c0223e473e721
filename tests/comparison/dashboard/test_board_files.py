"""A board as CSV and LaTeX."""

import csv
import io
import math

import pytest

from dpbench.comparison.dashboard.board_view import board_view
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


def test_the_files_have_what_the_board_shows(board, tmp_path):
    files = board_view(board, NAMES)["files"]
    first, *_ = csv.DictReader(io.StringIO(files["csv"]))
    assert first["method"].startswith("DPSGD-F & more")
    assert first["accuracy ↑"] == "84.0 % 71.3 to 96.7 +3.0 ± 0.0"
    assert r"DPSGD-F \& more" in files["tex"]
    assert_compiles(tmp_path, files["tex"])
