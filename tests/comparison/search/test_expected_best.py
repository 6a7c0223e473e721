"""The expected best of fewer trials."""

import itertools
import re
import statistics

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.comparison.search.command import search
from dpbench.comparison.search.selection import budgets, expected_best


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=7), st.data())
def test_it_is_the_mean_over_all_ways_to_draw_so_many(values, data):
    count = data.draw(st.integers(1, len(values)))
    drawn = [max(some) for some in itertools.combinations(values, count)]
    assert expected_best(values, count) == pytest.approx(statistics.fmean(drawn))


@given(st.permutations(range(6)), st.integers(1, 6))
def test_with_scores_it_is_the_value_of_the_one_that_scores_best(scores, count):
    values = [0.3, 0.1, 0.1, 0.7, 0.2, 0.9]
    chosen = [max(some, key=scores.__getitem__) for some in itertools.combinations(range(6), count)]
    drawn = [values[trial] for trial in chosen]
    assert expected_best(values, count, scores) == pytest.approx(statistics.fmean(drawn))


def test_it_is_unbiased_and_no_more_can_be_drawn_than_there_are():
    """Against the expected largest of four uniform numbers, 4/5, from searches of ten."""
    draws = np.random.default_rng(0).random((4000, 10))
    found = np.mean([expected_best(row.tolist(), 4) for row in draws])
    assert found == pytest.approx(0.8, abs=0.005)
    with pytest.raises(ValueError, match="5 of 4"):
        expected_best([1.0] * 4, 5)


@pytest.mark.parametrize(("trials", "sizes"), [(1, [1]), (8, [1, 2, 4, 8]), (20, [1, 2, 4, 8, 16])])
def test_budgets_are_doubled(trials, sizes):
    assert budgets(trials) == sizes


@pytest.mark.slow
def test_a_page_says_what_fewer_trials_would_have_found(tmp_path):
    asked = ["dataset=digits", "model=logistic", "epochs=1", "threads=1", f"results_dir={tmp_path}"]
    asked.append("extend=0")
    space = "optimizer.lr=tag(log,interval(1e-3,1))"
    budget = search([*asked, space, "N=8", "name=eight"]).partition("## Fewer trials")[2]
    found = {k: float(best) for k, best in re.findall(r"^\| (\d) \| ([\d.]+) \|$", budget, re.M)}
    accuracies = 100 * pd.read_csv(tmp_path / "search" / "eight.csv")["validation/accuracy"]
    assert found["1"] == pytest.approx(accuracies.mean(), abs=0.006)
    assert found["8"] == pytest.approx(accuracies.max(), abs=0.006)
    assert found["1"] < found["2"] < found["4"] < found["8"]
    assert "## Fewer trials" not in search([*asked, space, "N=4", "name=four"])
