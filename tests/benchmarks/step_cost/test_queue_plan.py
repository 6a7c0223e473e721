"""What the queue for a GPU takes, without one."""

import subprocess
from pathlib import Path

import pytest
from dpbench.benchmarks.step_cost.queue_plan import Forecast, Piece, fitting, forecast, pieces

ROOT = Path(__file__).parents[3]
SMALL = ["table.methods=[dpsgd]", "table.seeds=[0,1]"]


def test_pieces_that_reproduce_a_table_are_planned(tmp_path):
    queue = tmp_path / "queue"
    queue.write_text(
        "# dpbench reproduce no_piece\n\ntests pytest\ncost dpbench bench case=wrn16_4\n"
        "one  dpbench reproduce sign_table1 dataset=mnist device=cuda results_dir=$OUT\n"
    )
    assert [*pieces(queue)] == [Piece("one", "sign_table1", ["dataset=mnist"])]


def test_hours_grow_with_epochs_and_seeds():
    once, longer, fewer = (
        forecast(Piece("", "anchors_table1", [*SMALL, "dataset=mnist", *more]))
        for more in (["epochs=10"], ["epochs=30"], ["epochs=10", "table.seeds=[0]"])
    )
    assert once.unknown == ""
    assert (once.runs, fewer.runs) == (2, 1)
    assert fewer.hours == pytest.approx(once.hours / 2)
    assert longer.hours / once.hours == pytest.approx(3)
    assert once.downloads == ("MNIST, 12 MB, CC BY-SA 3.0",)


def made(name: str, claims: int, hours: float, unknown: str = "") -> Forecast:
    return Forecast(Piece(name, "", []), "", claims, 1, hours, 0, (), unknown)


def test_what_fits_is_taken_by_its_claims_an_hour():
    found = [made("slow", 9, 30.0), made("two", 2, 0.6), made("one", 3, 0.5), made("no", 9, 0, "?")]
    assert [f.piece.name for f in fitting(found, 1.0)] == ["one"]
    assert [f.piece.name for f in fitting(found, 32.0)] == ["one", "two", "slow"]


@pytest.mark.long
def test_the_script_prints_a_line_for_each_table():
    done = subprocess.run([ROOT / "benchmarks" / "gpu", "plan"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for piece in pieces(ROOT / "benchmarks" / "gpu.queue"):
        assert f"| {piece.name} |" in done.stdout
