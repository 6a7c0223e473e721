import math

import pandas as pd
import pytest

from dpbench.learning.metrics.derived import is_paired, pair_with_baseline
from dpbench.system.errors import UserError

COLUMNS = [
    *("dataset", "model", "method", "variant", "seed"),
    *("test/accuracy/a", "test/accuracy/b", "test/loss/a", "test/loss/b"),
]


def frame(*rows):
    return pd.DataFrame([("toy", "mlp", *row) for row in rows], columns=COLUMNS)


RUNS = frame(
    ("dpsgd", "corrected", 1, 0.7, 0.6, 0.5, 0.9),
    ("sgd", "corrected", 0, 0.9, 0.8, 0.1, 0.3),
    ("sgd", "corrected", 1, 0.8, 0.9, 0.2, 0.2),
    ("dpsgd", "corrected", 0, 0.8, 0.9, 0.4, 0.3),
    ("dpsgd", "corrected", 2, 0.8, 0.9, 0.4, 0.3),
)


def test_each_run_is_held_against_the_baseline_of_its_seed():
    paired = pair_with_baseline(RUNS, ("a", "b"), "sgd")
    assert paired["privacy_cost/a"].tolist()[:4] == pytest.approx([0.1, 0, 0, 0.1])
    assert paired["privacy_cost/b"].tolist()[:4] == pytest.approx([0.3, 0, 0, -0.1])
    assert paired["excessive_risk/a"].tolist()[:4] == pytest.approx([0.3, 0, 0, 0.3])
    assert paired["excessive_risk/b"].tolist()[:4] == pytest.approx([0.7, 0, 0, 0.0])


def test_gaps_are_absolute_within_each_seed_and_do_not_cancel():
    gaps = pair_with_baseline(RUNS, ("a", "b"), "sgd")
    private = gaps[gaps["method"] == "dpsgd"]
    assert private["privacy_cost_gap"].tolist()[:2] == pytest.approx([0.2, 0.2])
    assert private["excessive_risk_gap"].tolist()[:2] == pytest.approx([0.4, 0.3])


def test_excessive_risk_is_also_that_of_the_training_examples_where_they_were_measured():
    test = {"test/loss/a": "train_set/loss/a", "test/loss/b": "train_set/loss/b"}
    trained = RUNS.assign(**{name: 2 * RUNS[of] for of, name in test.items()})
    paired = pair_with_baseline(trained, ("a", "b"), "sgd")
    for name in ("excessive_risk/a", "excessive_risk/b", "excessive_risk_gap"):
        assert is_paired(f"train_set/{name}")
        assert paired[f"train_set/{name}"].tolist()[:4] == pytest.approx(
            [2 * risk for risk in paired[name][:4]]
        )
    without = pair_with_baseline(RUNS, ("a", "b"), "sgd")
    assert not any(name.startswith("train_set/") for name in without)


def test_a_run_without_its_baseline_has_nan():
    last = pair_with_baseline(RUNS, ("a", "b"), "sgd").iloc[-1]
    assert all(math.isnan(last[name]) for name in last.index if is_paired(name))


def test_the_order_of_rows_is_kept():
    kept = pair_with_baseline(RUNS, ("a", "b"), "sgd")[COLUMNS]
    pd.testing.assert_frame_equal(kept, RUNS)


def test_other_data_and_models_are_other_baselines():
    other = RUNS.assign(dataset="other").query("method == 'dpsgd'")
    paired = pair_with_baseline(pd.concat([RUNS, other]), ("a", "b"), "sgd")
    assert paired.query("dataset == 'other'")["privacy_cost/a"].isna().all()


def test_two_baselines_for_one_run_are_refused():
    twice = pd.concat([RUNS, RUNS.iloc[[1]]])
    with pytest.raises(UserError, match="two sgd runs"):
        pair_with_baseline(twice, ("a", "b"), "sgd")


def test_an_unmeasured_group_is_refused():
    with pytest.raises(UserError, match="no group 'c'"):
        pair_with_baseline(RUNS, ("a", "c"), "sgd")
