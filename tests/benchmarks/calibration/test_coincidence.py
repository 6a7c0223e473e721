import csv
import io
import math

import pandas as pd
import pytest
from dpbench.benchmarks.calibration.coincidence import curves, distances, judge_distances
from msgspec.structs import replace

from dpbench.comparison.reproduce.command import reproduce
from dpbench.comparison.reproduce.render import render
from dpbench.comparison.reproduce.target import target_of
from dpbench.runs.records.reading import parse
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

DIGITS = [
    *("dataset=digits", "model=logistic", "batch_size=1438", "table.seeds=[0]"),
    *("optimizer.lr=0.2", "epochs=5"),
]


def record(lr, sigma, losses, seed=0, steps_per_epoch=1):
    config = {
        "optimizer": {"lr": lr}, "privacy": {"noise_multiplier": sigma}, "seed": seed,
        "choices": {},
    }  # fmt: skip
    steps = {"steps": steps_per_epoch * len(losses)}
    return Record(config, {}, steps, {}, "complete", {"train/loss": losses})


def test_time_is_lr_times_the_steps_that_were_made_before():
    data = curves([record(0.1, 1, [8.0, 4.0]), record(0.05, 1, [8.0, 6.0], steps_per_epoch=4)])
    assert data["time"].tolist() == pytest.approx([0, 0.2, 0, 0.1])
    assert data["loss"].tolist() == [8, 6, 8, 4]


def test_the_distance_is_the_widest_place_in_units_of_the_first_loss():
    records = [
        *(record(0.1, 1, [8.0, 4.0, 2.0]), record(0.1, 2, [8.0, 5.0, 1.0])),
        *(record(0.1, 9, [8.0, 7.0, 2.0]), record(0.05, 1, [8.0] * 6)),
        *(record(0.05, 2, [8.0] * 5 + [7.0]), record(0.05, 1, [4.0], 1)),
        record(0.05, 2, [4.0], 1),
    ]
    found = distances(curves(records)).set_index(["lr", "seed"])["distance"]
    assert found.to_dict() == {(0.05, 0): 1 / 8, (0.05, 1): 0, (0.1, 0): 3 / 8}


def test_a_run_that_diverged_and_one_noise_multiplier_give_no_number():
    data = curves([record(0.1, 1, [8.0, 4.0]), record(0.1, 2, [8.0, math.nan])])
    assert math.isnan(distances(data)["distance"].item())
    with pytest.raises(UserError, match="keep at least two"):
        distances(curves([record(0.1, 1, [8.0, 4.0])]))


def test_the_claim_is_about_the_distances_of_learning_rates_that_the_table_has():
    wanted = target_of("calibration_fig1", [])
    (claim,) = wanted.claims
    rates = {dict(condition.values)["optimizer.lr"] for condition in wanted.conditions}
    assert {*claim.rows, *claim.than} == {f"lr {lr:g}" for lr in rates}
    for sign, verdict in ((1, "holds"), (-1, "fails")):
        rows = [(lr, seed, lr**sign * (1 + 1e-6 * seed)) for lr in rates for seed in range(3)]
        gaps = pd.DataFrame(rows, columns=["lr", "seed", "distance"])
        (one,) = judge_distances([claim], gaps)
        assert [c.verdict for c in one.comparisons] == [verdict] * 3
    with pytest.raises(UserError, match="about width"):
        judge_distances([replace(claim, quantities=("width",))], gaps)


def test_every_step_size_takes_the_same_time():
    wanted = target_of("calibration_fig1", [])
    at = [dict(condition.values) for condition in wanted.conditions]
    assert {round(c["optimizer.lr"] * c["epochs"], 9) for c in at} == {10.0}
    assert len({c["optimizer.lr"] for c in at}) == 4
    assert wanted.table.methods == ["dpsgd"]
    assert wanted.config["batch_size"] == 1279


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fig1")
    return folder / "tables", reproduce("calibration_fig1", [f"results_dir={folder}", *DIGITS])


@pytest.mark.long
def test_the_figure_has_a_curve_for_each_sigma_and_a_distance_for_each_lr(small):
    folder, text = small
    lines = list(csv.DictReader(io.StringIO((folder / "calibration_fig1-changed.csv").read_text())))
    assert {line["sigma"] for line in lines} == {"1", "35", "300"}
    assert len(lines) == 3 * 5
    data = [float(x["loss"]) for x in lines if x["time"] == "0"]
    assert len(set(data)) == 1, "all start at the same weights"
    assert "| 0.2 | " in text
    assert "Our own runs, changed: " in text
    assert (folder / "calibration_fig1-changed.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_same_records_in_any_order_give_the_same_bytes(small):
    folder, _ = small
    kept = (folder / "calibration_fig1-changed.records.jsonl").read_text().splitlines()
    records = [parse(line, "x") for line in kept]
    wanted = target_of("calibration_fig1", DIGITS)
    assert render(wanted, records) == render(wanted, records[::-1])
