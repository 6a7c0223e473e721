"""Groups of a user's table by several columns: their intersections, but for small ones."""

import shlex

import numpy as np
import pandas as pd
import pytest
import torch

from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.rerun import CommandBuilder
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest, scientific
from dpbench.runs.records.reading import read
from dpbench.system.errors import UserError
from tests.learning.data.custom.tables import data_of, settings


@pytest.fixture
def crowd(tmp_path):
    """240 women and 240 men in two towns, where 30 women of Rome are too few for a group."""
    sexes = ["f"] * 240 + ["m"] * 240
    towns = ["Bonn"] * 210 + ["Rome"] * 30 + ["Bonn"] * 120 + ["Rome"] * 120
    wages = np.random.default_rng(0).normal(50, 9, 480).round(2)
    frame = pd.DataFrame({"sex": sexes, "town": towns, "wage": wages, "rich": wages > 50})
    path = tmp_path / "crowd.csv"
    frame.to_csv(path, index=False)
    return path


def test_groups_by_several_columns_are_their_intersections_but_for_small_ones(crowd):
    asked = settings(crowd, "dataset.group=[sex,town]")
    assert scientific(compose(asked))["dataset"]["group"] == ["sex", "town"]
    dataset, data = data_of(crowd, *asked[3:])
    assert dataset.groups == ("f & Bonn", "m & Bonn", "m & Rome", "others")
    every = torch.cat([data.train.groups, data.test.groups])
    assert torch.bincount(every).tolist() == [210, 120, 120, 30]
    # sex=f, sex=m, town=Bonn, town=Rome
    (female, _, bonn, _) = torch.cat([data.train.inputs, data.test.inputs])[:, 1:].bool().T
    assert torch.equal(every == 0, female & bonn)
    assert torch.equal(every == 3, female & ~bonn)


def test_one_column_in_a_list_is_the_column(crowd):
    one, listed = (compose(settings(crowd, f"dataset.group={text}")) for text in ("sex", "[sex]"))
    assert digest(one) == digest(listed)
    assert listed["dataset"]["groups"] == ["f", "m"]


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ("[sex,wages]", "dataset.group=wages is unknown"),
        ("[sex,sex]", r"dataset.group=\[sex,sex\] names a column twice"),
        ("[sex,wage]", "dataset.group=wage has fractional numbers"),
    ],
)
def test_intersections_of_other_columns_are_refused(group, why, crowd):
    with pytest.raises(UserError, match=why):
        compose(settings(crowd, f"dataset.group={group}"))


def test_a_table_too_small_for_intersections_is_refused(people):
    with pytest.raises(UserError, match=r"\[sex,town\] has no two intersections of 100 rows"):
        compose(settings(people, "dataset.group=[sex,town]"))


@pytest.mark.slow
def test_metrics_are_per_intersection_and_the_record_has_its_command(crowd, tmp_path):
    small = ["model=logistic", "epochs=1", "batch_size=64", f"results_dir={tmp_path}"]
    record = read(load_or_run(run_config(settings(crowd, "dataset.group=[sex,town]", *small))))
    assert {"test/accuracy/f & Bonn", "test/loss/others", "test/accuracy_gap"} <= {*record.metrics}
    assert not np.isnan(record.metrics["test/equalized_odds_difference"])
    assert digest(compose(shlex.split(CommandBuilder()(record.config))[2:])) == record.digest
