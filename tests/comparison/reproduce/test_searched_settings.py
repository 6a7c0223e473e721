"""Settings that a table takes from a search are the best of the trials that are committed."""

import re
from pathlib import Path

import pandas as pd
import pytest

from dpbench.comparison.reproduce.target import target_of
from dpbench.comparison.tables.figures.scatter import TRIAL
from dpbench.runs.config.compose import compose
from dpbench.system.errors import UserError
from dpbench.system.paths import searches_folder

SEARCHES = Path(__file__).resolve().parents[3] / "results" / "search"
OF_SIGNS = sorted(path.stem for path in SEARCHES.glob("sign_table1-*.csv"))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", OF_SIGNS)
def test_sign_table1_trains_with_the_best_trial_of_each_search(name):
    dataset, model, method = re.fullmatch(
        r"sign_table1-(\w+?)(?:-(mlp|cnn_tanh))?-(\w+)", name
    ).groups()
    best = pd.read_csv(SEARCHES / f"{name}.csv").iloc[0]
    chosen = [f"dataset={dataset}", f"model={model or 'logistic'}", f"method={method}"]
    config = compose(["+table=sign_table1", *chosen])
    for setting in {"optimizer.lr", "method.bound"} & set(best.index):
        group, _, key = setting.partition(".")
        assert config[group][key] == best[setting], setting


def test_there_is_a_search_for_each_method_and_network_that_was_tuned():
    assert len(OF_SIGNS) == 4 * 7


def test_a_scatter_shows_every_trial_behind_its_rows():
    points = pd.read_csv(SEARCHES.parent / "tables" / "frontier_fig1.csv")
    trials = points[points["kind"] == TRIAL]
    assert set(trials.groupby(["condition", "arm"]).size()) == {64}
    found = trials[(trials["condition"] == "mnist_unbalanced, eps1") & (trials["arm"] == "bam")]
    lines = pd.read_csv(SEARCHES / "frontier_table6-mnist_unbalanced-eps1-bam.csv")
    of_trials = lines[lines["stage"] != "final"]
    for axis, metric in {"x": "accuracy", "y": "worst_group_accuracy"}.items():
        expected = sorted(of_trials[f"validation/{metric}"])
        assert sorted(found[axis]) == pytest.approx(expected, abs=1e-5)


def test_a_search_that_is_missing_is_named_with_the_folder_that_it_belongs_to():
    with pytest.raises(UserError, match=f"mine-sgd, which is not in {searches_folder()}: make it"):
        target_of("demo", ['+table.tuned="mine-{method}"'])
