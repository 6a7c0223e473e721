import csv

import pytest

from dpbench.runs.records.trackers.csv import CsvTracker


def rows(path):
    with path.open() as file:
        return {int(row.pop("step")): row for row in csv.DictReader(file)}


@pytest.mark.slow
def test_a_run_is_a_file_of_its_steps(tracked, tmp_path):
    record = tracked("csv")
    folder = tmp_path / "tracking" / "csv"
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{record.digest}-reliability.csv",
        f"{record.digest}-reliability.png",
        f"{record.digest}.csv",
        f"{record.digest}.txt",
    ]
    assert (folder / f"{record.digest}.txt").read_text() == (
        "Epsilons: delta 1e-05, per example, add-or-remove adjacency, Poisson batches, proven. "
        "All other numbers are exact, such as train/loss: no epsilon covers them.\n"
    )
    kept = rows(folder / f"{record.digest}.csv")
    steps = record.privacy["steps"]
    assert list(kept) == [steps // 2, steps]
    assert [float(row["train/loss"]) for row in kept.values()] == record.history["train/loss"]
    assert kept[steps // 2]["test/accuracy"] == ""
    assert float(kept[steps]["test/accuracy"]) == record.metrics["test/accuracy"]


def test_a_run_that_goes_on_has_each_step_once_and_nan_stays_nan(interrupted, tmp_path):
    interrupted(CsvTracker())
    kept = rows(tmp_path / "csv" / "abc.csv")
    assert {step: row["train/loss"] for step, row in kept.items()} == {
        0: "", 10: "nan", 20: "2.0", 30: "1.0",
    }  # fmt: skip
    assert kept[0]["step/bias"] == "0.25"
    assert kept[30]["test/accuracy"] == "0.5"
