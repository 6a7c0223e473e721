"""The search spaces in the files of the methods."""

import re

import pandas as pd
import pytest

from dpbench.comparison.search.command import search
from dpbench.comparison.search.report import at_edge
from dpbench.comparison.search.request import parse, with_space
from dpbench.comparison.search.selection import Trial
from dpbench.runs.config.buildable import settings_of
from dpbench.runs.config.compose import compose
from dpbench.runs.config.overrides import split_ranges
from dpbench.runs.config.search_path import file_of, options, searching
from dpbench.runs.config.settings import leaves
from dpbench.runs.config.space import SEARCH, Interval, ranges_of, searchable, space_of
from dpbench.system.errors import UserError

PRIVATE = [name for name in options("method") if name not in ("sgd", "signsgd")]
BESIDE = {"dpsgld": ["privacy=follows"], "dpsghmc": ["privacy=follows", "optimizer=momentum"]}


@pytest.mark.parametrize("method", options("method"))
def test_every_method_has_a_space_with_its_source(method):
    text = file_of("method", method).read_text(encoding="utf-8")
    assert re.search(r"\n# Source: (.+\n# )*.+\nsearch:\n", text)
    assert "optimizer.lr" in ranges_of(method)


def test_a_space_is_in_no_run_and_is_that_of_the_method_that_is_run():
    for method in searchable():
        assert SEARCH not in compose([f"method={method}", *BESIDE.get(method, [])])["method"]
        with pytest.raises(UserError, match=r"method\.search"):
            compose([f"method={method}", "method.search.start=1"])
    request = parse(["space=method", "method=dpsgd_quantile", "dataset=digits", "model=mlp"])
    assert {r.key for r in request.space.ranges} == {*ranges_of("dpsgd_quantile")}
    arm = parse(["space=method", "+table=frontier_table1", "table.arm=slaclip", "dataset=digits"])
    assert "method.slots" in {r.key for r in arm.space.ranges}


@pytest.mark.parametrize("method", options("method"))
def test_a_space_is_of_settings_of_the_method_and_includes_its_defaults(method):
    config = compose([f"method={method}"])
    known = dict(leaves(config))
    ranges, fixed = split_ranges([f"{k}={v}" for k, v in ranges_of(method).items()])
    assert {r.key for r in ranges} <= known.keys()
    assert all(override.startswith(("method.bound=", "optimizer.lr=")) for override in fixed)
    for found in ranges:
        if found.key.startswith("method.") and isinstance(found, Interval):
            assert found.low <= known[found.key] <= found.high, found.key
    if "bound" in settings_of(config["method"]):
        assert "method.bound" in ranges_of(method)


@pytest.mark.parametrize("method", PRIVATE)
def test_a_bound_and_a_learning_rate_range_over_decades(method):
    ranges, _ = split_ranges([f"{k}={v}" for k, v in ranges_of(method).items()])
    for found in ranges:
        if found.key in ("method.bound", "optimizer.lr"):
            assert found.log
            assert found.high >= 100 * found.low


def test_what_the_user_sets_is_not_searched_by_the_space():
    given = ["space=method", "method=dpsgd_quantile", "method.bound=1", "optimizer.lr=0.1,0.3"]
    request = parse([*given, "dataset=digits", "model=mlp"])
    texts = {r.key: r.text for r in request.space.ranges}
    assert "method.bound" not in texts
    assert texts["optimizer.lr"] == "0.1,0.3"
    assert "method.quantile" in texts


def test_an_added_folder_brings_the_space_of_its_method(tmp_path):
    (tmp_path / "method").mkdir()
    file = file_of("method", "dpsgd").read_text().partition("# Source")[0]
    file += "search:\n  optimizer.lr: 0.1,0.2\n"
    (tmp_path / "method" / "mine.yaml").write_text(file)
    with searching([tmp_path]):
        assert with_space("mine", ["epochs=1"]) == ["optimizer.lr=0.1,0.2", "epochs=1"]
        assert SEARCH not in compose(["method=mine"])["method"]


def test_a_space_that_is_no_mapping_is_refused(tmp_path):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("bound: 1\nsearch: [1]\n")
    with searching([tmp_path]), pytest.raises(UserError, match=r"search of .*mine\.yaml must be a"):
        space_of("mine")


def test_a_chosen_number_in_the_outer_tenth_of_those_tried_is_at_its_edge():
    ranges, _ = split_ranges(
        ["optimizer.lr=tag(log,interval(0.01,100))", "method.quantile=interval(0,1)"]
    )

    def trial(number, lr, quantile):
        return Trial(number, {"optimizer.lr": str(lr), "method.quantile": str(quantile)}, {})

    ends = [trial(2, 0.01, 0.0), trial(3, 100.0, 1.0)]

    def said(lr, quantile):
        chosen = trial(1, lr, quantile)
        found = at_edge(chosen, [chosen, *ends], ranges)
        return [sentence.split("`")[1] for sentence in found]

    assert said(0.0251, 0.5) == ["optimizer.lr=0.0251"], "a tenth of four decades"
    assert said(0.0252, 0.11) == []
    assert said(39.9, 0.89) == ["optimizer.lr=39.9"]
    assert said(1, 0.95) == ["method.quantile=0.95"]


@pytest.mark.slow
def test_the_finalists_run_again_with_other_seeds_and_their_mean_chooses(tmp_path):
    asked = ["dataset=digits", "model=logistic", "epochs=1", "N=4", "seed=3", "finalists=2"]
    more = ["final_seeds=3", "optimizer.lr=tag(log,interval(1e-3,1))", "name=two", "threads=1"]
    more.append("extend=0")
    text = search([*asked, *more, f"results_dir={tmp_path}"])
    lines = pd.read_csv(tmp_path / "search" / "two.csv")
    final, first = lines[lines["stage"] == "final"], lines[lines["stage"].isna()]
    assert (len(final), len(first)) == (2, 4)
    assert set(final["n"]) == {3}
    assert set(final["trial"]) == set(first["trial"][:2]), "the best two of the first stage"
    assert final["validation/accuracy"].is_monotonic_decreasing
    assert f"Chosen: trial {final['trial'].iloc[0]}." in text
    assert "## Finalists" in text
    assert "again with seeds 4, 5, 6" in text
    assert search([*asked, *more, f"results_dir={tmp_path}"]) == text, "nothing is run twice"


@pytest.mark.slow
def test_without_finalists_there_is_one_stage(tmp_path):
    asked = ["dataset=digits", "model=logistic", "epochs=1", "N=2", "name=one", "threads=1"]
    text = search([*asked, "optimizer.lr=0.1,0.2", f"results_dir={tmp_path}"])
    assert "Finalists" not in text
    assert "stage" not in pd.read_csv(tmp_path / "search" / "one.csv")


@pytest.mark.slow
def test_the_worst_group_is_a_rule(tmp_path):
    asked = ["dataset=digits", "model=logistic", "epochs=1", "N=3", "name=group", "threads=1"]
    more = ["rule=best_worst_group", "optimizer.lr=0.01,0.1,1", f"results_dir={tmp_path}"]
    text = search([*asked, *more])
    trials = pd.read_csv(tmp_path / "search" / "group.csv")
    worst = trials["validation/worst_group_accuracy"]
    assert trials["validation/ece"].between(0, 1).all()
    assert worst.is_monotonic_decreasing
    assert "| accuracy (%) | worst group (%) | loss |" in text
    assert f"| {100 * worst[0]:.2f} |" in text
