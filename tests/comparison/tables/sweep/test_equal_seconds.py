"""Methods at equal seconds, from runs that took different times."""

from dataclasses import replace

import pytest

from dpbench.comparison.tables.sweep.command import table
from dpbench.system.errors import UserError
from tests.comparison.tables.sweep.made_up import record


def timed(method, epochs, value, seconds, seed=0, **provenance):
    made = record(method, seed=seed, value=value)
    return replace(
        made,
        config=made.config | {"epochs": epochs},
        provenance={"seconds": seconds, "device": "cpu", **provenance},
    )


RUNS = [
    *(timed("dpsgd", 10, 0.80, seconds, seed) for seed, seconds in enumerate((28.0, 31.0))),
    timed("dpsgd", 20, 0.90, 60.0),
    timed("bam", 5, 0.70, 30.0),
    timed("bam", 10, 0.95, 61.0),
]


def made(folder, *more, runs=RUNS):
    for one in runs:
        one.save(folder)
    return table([str(folder), f"out={folder / 't'}", "rows=method,epochs", *more])


def test_seconds_are_a_column_and_their_limit_is_of_means_over_seeds(tmp_path):
    said = made(tmp_path, "metrics=accuracy,seconds", "seconds=30")
    assert said.startswith(
        "# Accuracy (%), seconds by method and epochs: digits, mlp, in at most 30 s"
    )
    assert "| DP-SGD | 10 | **80.0 ± 0.0 (2)** | **29.5 ± 2.1 (2)** |" in said
    assert "| BAM | 5 | 70.0 (1) | 30.0 (1) |" in said
    assert "95.0" not in said
    assert "90.0" not in said


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("5", r"no run takes at most seconds=5: the fastest take 29\.5"),
        ("0", "seconds must be"),
        ("fast", "seconds must be"),
    ],
)
def test_a_limit_that_selects_nothing_is_refused(limit, why, tmp_path):
    with pytest.raises(UserError, match=why):
        made(tmp_path, f"seconds={limit}")


def test_times_of_several_machines_are_not_compared(tmp_path):
    runs = [*RUNS, timed("sgd", 10, 0.99, 1.0, device="cuda")]
    with pytest.raises(UserError, match="these runs differ in device or threads"):
        made(tmp_path, "seconds=30", runs=runs)
