"""What fewer trials would have found: the figure over the committed searches."""

import io
import math

import pandas as pd
import pytest
from dpbench.benchmarks.frontier.tuning_budgets import interval, private_costs, tuning_budgets

from dpbench.comparison.reproduce.target import target_of
from dpbench.runs.config.table_rules import trials_of

METRIC = "validation/accuracy"


@pytest.fixture(scope="module")
def files():
    return tuning_budgets(target_of("frontier_fig2", []))


@pytest.mark.long
def test_the_best_of_all_trials_is_that_of_the_search_and_more_trials_find_no_less(files):
    data = pd.read_csv(io.BytesIO(files["csv"]))
    assert sorted(set(data["trials"])) == [1, 2, 4, 8, 16, 32, 64]
    for _, points in data.groupby(["arm", "metric"]):
        assert points.sort_values("trials")["expected_best"].is_monotonic_increasing
        assert (points["low"] <= points["expected_best"] + 1e-6).all()
    trials = trials_of("frontier_table1-dutch-slaclip-space")
    most = data[(data["arm"] == "slaclip") & (data["metric"] == METRIC) & (data["trials"] == 64)]
    assert most["expected_best"].item() == pytest.approx(
        max(float(trial[METRIC]) for trial in trials), rel=1e-5
    )


def test_an_interval_covers_the_expected_best_and_its_cost_is_of_the_best_trials():
    """Of uniform values the expected best of k is k/(k + 1)."""
    values = [(i + 0.5) / 200 for i in range(200)]
    for count in (1, 4, 16):
        low, high = interval(values, count)
        assert low < count / (count + 1) < high
    # Costs that fall as scores rise: that of the best of k is one less its score.
    scores = [(i + 0.5) / 200 for i in range(200)]
    low, high = interval(scores, 4)
    costs = [1 - score for score in scores]
    assert interval(costs, 4, scores) == pytest.approx((1 - high, 1 - low))


@pytest.mark.slow
def test_a_private_search_costs_more_the_more_trials_it_makes():
    goal = target_of("frontier_table4", [])
    scored = ["validation=0.2", "score_noise_multiplier=10"]
    costs = private_costs([*next(goal.cells_of(goal.conditions[0], "dpsgd")), *scored], [1, 2, 8])
    assert costs[1] == pytest.approx(3, rel=0.02)
    assert costs[1] < costs[2] < costs[8] < math.inf
