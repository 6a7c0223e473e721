import math

import pytest

from dpbench.learning.metrics.derived import is_paired, pair_with_baseline
from dpbench.system.errors import UserError

NAMES = ("method", "seed", "test/accuracy/a", "test/accuracy/b", "test/loss/a", "test/loss/b")
RUNS = [
    {"dataset": "toy", "model": "mlp", **dict(zip(NAMES, run, strict=True))}
    for run in [
        ("dpsgd", 1, 0.7, 0.6, 0.5, 0.9),
        ("sgd", 0, 0.9, 0.8, 0.1, 0.3),
        ("sgd", 1, 0.8, 0.9, 0.2, 0.2),
        ("dpsgd", 0, 0.8, 0.9, 0.4, 0.3),
        ("dpsgd", 2, 0.8, 0.9, 0.4, 0.3),
    ]
]


def column(runs, name):
    return [run[name] for run in runs]


def test_each_run_is_held_against_the_baseline_of_its_seed():
    paired = pair_with_baseline(RUNS, ("a", "b"), "sgd")[:4]
    assert column(paired, "privacy_cost/a") == pytest.approx([0.1, 0, 0, 0.1])
    assert column(paired, "privacy_cost/b") == pytest.approx([0.3, 0, 0, -0.1])
    assert column(paired, "excessive_risk/a") == pytest.approx([0.3, 0, 0, 0.3])
    assert column(paired, "excessive_risk/b") == pytest.approx([0.7, 0, 0, 0.0])


def test_gaps_are_absolute_within_each_seed_and_do_not_cancel():
    gaps = pair_with_baseline(RUNS, ("a", "b"), "sgd")
    private = [run for run in gaps if run["method"] == "dpsgd"][:2]
    assert column(private, "privacy_cost_gap") == pytest.approx([0.2, 0.2])
    assert column(private, "excessive_risk_gap") == pytest.approx([0.4, 0.3])


def test_excessive_risk_is_also_that_of_the_training_examples_where_they_were_measured():
    trained = [
        run | {f"train_set/loss/{group}": 2 * run[f"test/loss/{group}"] for group in "ab"}
        for run in RUNS
    ]
    paired = pair_with_baseline(trained, ("a", "b"), "sgd")[:4]
    for name in ("excessive_risk/a", "excessive_risk/b", "excessive_risk_gap"):
        assert is_paired(f"train_set/{name}")
        twice = [2 * risk for risk in column(paired, name)]
        assert column(paired, f"train_set/{name}") == pytest.approx(twice)
    without = pair_with_baseline(RUNS, ("a", "b"), "sgd")
    assert not any(name.startswith("train_set/") for name in without[0])


def test_a_run_without_its_baseline_has_nan():
    last = pair_with_baseline(RUNS, ("a", "b"), "sgd")[-1]
    assert all(math.isnan(value) for name, value in last.items() if is_paired(name))


def test_the_order_of_rows_is_kept():
    kept = pair_with_baseline(RUNS, ("a", "b"), "sgd")
    assert [run | before for run, before in zip(kept, RUNS, strict=True)] == kept


def test_other_data_and_models_are_other_baselines():
    other = [run | {"dataset": "other"} for run in RUNS if run["method"] == "dpsgd"]
    paired = pair_with_baseline([*RUNS, *other], ("a", "b"), "sgd")[len(RUNS) :]
    assert all(map(math.isnan, column(paired, "privacy_cost/a")))


def test_two_baselines_for_one_run_are_refused():
    twice = [*RUNS, dict(RUNS[1])]
    with pytest.raises(UserError, match="two sgd runs"):
        pair_with_baseline(twice, ("a", "b"), "sgd")


def test_an_unmeasured_group_is_refused():
    with pytest.raises(UserError, match="no group 'c'"):
        pair_with_baseline(RUNS, ("a", "c"), "sgd")
