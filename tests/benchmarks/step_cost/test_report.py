"""From timings to CSV, table and picture."""

import math

import pytest
from dpbench.benchmarks.step_cost import picture, report
from dpbench.benchmarks.step_cost.cases import DEPTH, Case
from dpbench.benchmarks.step_cost.check import Verdict
from dpbench.benchmarks.step_cost.report import disturbed
from dpbench.benchmarks.step_cost.timing import Timing

from dpbench.system.errors import UserError

CASE = Case("tiny", "mlp", (5,), 3, 8)


def timed(scale=1.0):
    ok = Verdict(1e-7, "ok")
    return [
        Timing("plain", 147, ok, 10, [[0.001 * scale], [0.002 * scale], [0.003 * scale]], 2**20),
        Timing(
            "ours_ghost",
            147,
            ok,
            5,
            [[0.003 * scale, 0.005 * scale], [0.004 * scale], [0.006 * scale]],
            2**21,
        ),
        Timing("fastdp", reason="not installed"),
    ]


@pytest.fixture
def measured(tmp_path):
    path = tmp_path / "new" / "step_cpu.csv"
    report.add(path, report.rows(CASE, timed(), "a machine", 0.5))
    return path


def test_a_ratio_is_the_median_of_the_ratios_of_each_turn(measured):
    data = report.read(measured).set_index("contender")
    assert data.loc["ours_ghost", ["ratio", "ratio_min", "ratio_max"]].tolist() == [2, 2, 4]
    assert data.loc["ours_ghost", ["ms", "ms_min", "ms_max"]].tolist() == [4, 4, 6]
    assert data.loc["plain", "ratio"] == 1
    assert math.isnan(data.loc["fastdp", "ratio"])


def turns(contender, *milliseconds):
    return Timing(contender, 147, Verdict(1e-7, "ok"), 10, [[ms / 1000] for ms in milliseconds])


@pytest.mark.parametrize(
    ("plain", "ours", "load", "shown"),
    [
        ((1.0, 1.2, 2.9), (2.0, 2.4, 5.8), 0.7, True),
        pytest.param((1.0, 1.2, 3.1), (2.0, 2.4, 6.2), 0.7, False, id="the plain step varies"),
        pytest.param((9.0, 9.0, 9.0), (2.0, 2.0, 2.0), 0.7, False, id="a part is slower than all"),
        pytest.param((1.0, 1.2, 1.2), (2.0, 2.4, 2.4), 1.6, False, id="others were running"),
    ],
)
def test_a_ratio_to_a_disturbed_step_is_marked_instead(plain, ours, load, shown):
    timed = [turns("plain", *plain), turns("ours_ghost", *ours)]
    data = report.rows(CASE, timed, "a machine", load)
    assert set(data["load"]) == {load}
    assert disturbed(data) == (set() if shown else {"tiny"})
    lines = report.markdown(data).splitlines()
    line = next(line for line in lines if line.startswith("| ours_ghost |"))
    assert line == f"| ours_ghost | {'2.00' if shown else 'disturbed'} |"
    assert picture.draw(data).startswith(b"\x89PNG")


def test_rows_of_contenders_that_are_not_measured_again_are_not_replaced(measured):
    every = ["plain", "ours_ghost", "fastdp"]
    report.check_replaced(measured, {"tiny": [*every, "opacus"], "other": ["plain"]})
    report.check_replaced(measured.with_name("none.csv"), {"tiny": ["plain"]})
    with pytest.raises(UserError, match=r"contenders of tiny, such as fastdp, .*: set out="):
        report.check_replaced(measured, {"tiny": every[:2]})


def test_measuring_a_case_again_replaces_all_its_rows_and_no_others(measured):
    other = Case("other", "mlp", (5,), 3, 8)
    report.add(measured, report.rows(other, timed(), "a machine", 0.5))
    report.add(measured, report.rows(CASE, timed(2.0)[:1], "another machine", 0.5))
    data = report.read(measured)
    assert data["case"].tolist() == ["tiny", "other", "other", "other"]
    assert data.loc[data["case"] == "tiny", "ms"].tolist() == [4]
    text = report.markdown(data)
    assert "- other: a machine" in text
    assert "- tiny: another machine" in text


def test_the_table_says_what_was_measured_and_why_not(measured):
    text = report.render(measured, report.markdown, picture.draw)
    assert text == measured.with_suffix(".md").read_text()
    assert "Batch size 8, float32, 147 parameters, load 0.5 a core." in text
    assert "| ours_ghost | 4 (4 to 6) | 2.00 | 2 | ok |" in text
    assert "| fastdp | — | — | — | not installed |" in text
    assert measured.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_the_depth_picture_is_drawn(tmp_path):
    path = tmp_path / "depth_cpu.csv"
    for case in DEPTH:
        report.add(path, report.rows(case, timed(), "a machine", 0.5))
    report.render(path, report.markdown, picture.draw_depth)
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
