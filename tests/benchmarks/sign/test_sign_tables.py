"""What is computed for the note without training, and its table of accuracies on a small scale."""

import csv
import io
import itertools

import numpy as np
import pytest
from dpbench.benchmarks.sign.epsilons import PlannedEpsilons, claim
from dpbench.benchmarks.sign.error_rates import error_rates
from dpbench.benchmarks.sign.measured import Measured, measured_epsilon
from dpbench.benchmarks.sign.measured import claim as claim_of_measured
from dpbench.benchmarks.sign.variance import (
    SignVarianceSettings,
    clipped_moments,
    errors_by_variance,
)

from dpbench.comparison.reproduce.command import reproduce
from dpbench.privacy.accountants import ORDERS
from dpbench.privacy.ledger import CoordinateMechanism
from dpbench.privacy.paper_epsilons import note_epsilon

FEW = ["table.compute.dimensions=[1,50]", "table.compute.points=7"]


@pytest.fixture(scope="module")
def errors():
    return error_rates(2.0, 1e-4, [1, 50], [0.0, 0.5, 2.0])


@pytest.mark.slow
def test_the_error_rate_is_how_often_a_draw_has_the_wrong_sign(errors):
    draw = np.random.default_rng(0)
    for law, name in (("normal", "Gaussian"), ("laplace", "Laplace"), ("logistic", "logistic")):
        (row,) = errors[
            (errors["dimension"] == 50)
            & errors["law"].str.startswith(name)
            & (errors.signal == 0.5)
        ].to_dict("records")[:1]
        wrong = getattr(draw, law)(0.5, row["multiplier"], 100_000) < 0
        assert wrong.mean() == pytest.approx(row["error"], abs=4 * 0.5 / 100_000**0.5)


def test_no_signal_is_a_coin_and_more_of_it_is_wrong_less_often(errors):
    for _, rows in errors.groupby(["dimension", "law"]):
        found = rows.sort_values("signal")["error"].tolist()
        assert found[0] == pytest.approx(0.5)
        assert found[0] > found[1] > found[2]


def test_all_laws_meet_the_same_budget_and_signs_need_less_noise(errors):
    scales = errors.groupby(["dimension", "law"])["multiplier"].first()
    for dimension, law in itertools.product((1, 50), ("Gaussian", "logistic")):
        of_sum, of_sign = (scales[dimension, f"{law}, account of the {w}"] for w in ("sum", "sign"))
        assert of_sign <= of_sum
    assert scales[1, "Laplace"] == pytest.approx(0.5, rel=2e-3)  # pure epsilon 2, almost
    of_sum = "Gaussian, account of the sum"
    assert scales[50, of_sum] == scales[1, of_sum]


@pytest.mark.slow
def test_the_figure_is_a_picture_its_points_and_a_page(tmp_path):
    said = reproduce("sign_fig1", [f"results_dir={tmp_path}", "scale=cpu_hour", *FEW])
    files = {path.suffix: path for path in (tmp_path / "tables").iterdir()}
    assert set(files) == {".md", ".csv", ".json", ".png", ".svg", ".pdf"}
    assert files[".png"].read_bytes().startswith(b"\x89PNG")
    assert files[".md"].read_text() == said
    assert len(list(csv.DictReader(io.StringIO(files[".csv"].read_text())))) == 2 * 5 * 7


@pytest.mark.slow
def test_the_table_of_epsilons_has_a_line_for_each_run_in_their_order(tmp_path):
    asked = ["scale=cpu_hour", "privacy.noise_multiplier=0.5", f"results_dir={tmp_path}"]
    reproduce("sign_table2", asked)
    (path,) = (tmp_path / "tables").glob("*.csv")
    (line,) = csv.DictReader(io.StringIO(path.read_text()))
    least, most, renyi = (float(line[n]) for n in ("at least", "at most (PLD)", "at most (RDP)"))
    assert 0.99 * most < least <= most < renyi
    assert float(line["the note's formula"]) < 0.9 * least
    assert line["parameters"] == "91650"
    said = (tmp_path / "tables" / path.name).with_suffix(".md").read_text()
    assert "It does not hold: in 1 of 1 runs" in said


def test_what_is_measured_is_no_upper_bound_below_what_is_spent():
    above, between = PlannedEpsilons(2, 1.6, 1.5, 1), PlannedEpsilons(1.2, 1.6, 1.5, 1)
    below = PlannedEpsilons(1 - 1e-6, 1.6, 1.5, 1)
    assert claim([above, PlannedEpsilons(1.5, 1.6, 1.5, 1)]).endswith("It holds.")
    assert claim([above, between]).endswith("undecided: in 1 of 2 runs it is between the bounds.")
    said = claim([above, between, below])
    assert said.endswith("does not hold: in 1 of 3 runs it is below what is surely spent.")
    above, below = Measured(3, 2, 1), Measured(3, 0.5, 1)
    assert claim_of_measured([above]).endswith("It is undecided.")
    assert "in 1 of 2 runs it is below" in claim_of_measured([above, below])


@pytest.mark.parametrize(("mean", "deviation"), [(0.1, 0.1), (0.1, 1.0), (0.5, 10.0)])
def test_the_moments_of_clipped_gradients_are_those_of_draws(mean, deviation):
    draws = np.random.default_rng(0).normal(mean, deviation, 200_000).clip(-1, 1)
    of_mean, of_variance = clipped_moments(mean, deviation)
    assert draws.mean() == pytest.approx(of_mean, abs=4 * draws.std() / 200_000**0.5)
    assert draws.var() == pytest.approx(of_variance, rel=0.02)


def test_accumulation_helps_and_a_large_variance_leaves_the_clip_less_of_the_signal():
    variances = {"small": 0.1, "large": 10.0}
    found = errors_by_variance(SignVarianceSettings(2.0, 1e-4, 50, 0.1, variances, [64, 4096]))
    errors = found.set_index(["variance", "law", "examples"])["error"]
    for law in ("without noise", "Gaussian", "Laplace", "logistic"):
        for variance in variances:
            assert errors[variance, law, 64] > errors[variance, law, 4096]
        assert errors["large", law, 64] > errors["small", law, 64]
    draw, noise = np.random.default_rng(0), error_rates(2.0, 1e-4, [50], [0.0])
    scale = noise.set_index("law")["multiplier"]["Laplace"] * 50**0.5
    sums = draw.normal(0.1, 10, (20_000, 64)).clip(-1, 1).sum(1) + draw.laplace(0, scale, 20_000)
    assert (sums < 0).mean() == pytest.approx(errors["large", "Laplace", 64], abs=0.015)


def test_what_is_measured_is_the_note_s_where_all_gradients_are_at_the_bound_and_else_less():
    mechanism, rate, steps, delta = CoordinateMechanism("logistic", 0.5, 30, True), 0.1, 100, 1e-5
    by_bound = note_epsilon([(rate, mechanism, steps)], delta, ORDERS)
    largest = np.ones(30)
    assert measured_epsilon(largest, mechanism, rate, steps, delta) == pytest.approx(by_bound)
    assert measured_epsilon(largest / 2, mechanism, rate, steps, delta) < 0.8 * by_bound


@pytest.mark.long
def test_the_table_of_accuracies_on_digits(tmp_path):
    small = ["dataset=digits", "privacy.epsilon=8", "table.seeds=[0]"]
    said = reproduce(
        "sign_table1", [f"results_dir={tmp_path}", "scale=cpu_hour", "privacy.delta=1e-4", *small]
    )
    for method in ("dpsgd", "dp_signsgd", "dp_signlosgd", "dp_losgd"):
        line, *_ = [row for row in said.splitlines() if f", {method} |" in row]
        accuracy, epsilon = line.split("|")[2:4]
        assert "NaN" not in accuracy
        assert accuracy.endswith("(1) ")
        assert 7 < float(epsilon) <= 8
