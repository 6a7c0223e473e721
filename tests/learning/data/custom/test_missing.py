"""Rows of a table without a value: refused, imputed, or imputed with an indicator."""

import numpy as np
import pandas as pd
import pytest
import torch

from dpbench import load_preparation
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.system.errors import UserError
from tests.learning.data.custom.tables import data_of, settings


@pytest.fixture
def gaps(people):
    """The table of people, in which row 3 has no wage and row 5 no town."""
    frame = pd.read_csv(people)
    frame.loc[3, "wage"] = np.nan
    frame.loc[5, "town"] = None
    frame.to_csv(people, index=False)
    return people


def inputs_in_order(path, *more):
    """The inputs of all rows, in the order of the file, and the training rows' numbers."""
    run = run_of(run_config(settings(path, *more)))
    train, test = run.dataset.order(0)
    data = run.dataset.load(path, 0)
    order = np.argsort(np.concatenate([train, test]))
    return torch.cat([data.train.inputs, data.test.inputs])[order], train


def test_missing_values_are_refused_with_the_way_out(gaps):
    with pytest.raises(UserError, match=r"one of 2 such cells .*, or set dataset.missing=impute"):
        compose(settings(gaps))


def test_an_imputed_number_is_the_training_rows_mean_and_an_imputed_category_none(gaps):
    inputs, train = inputs_in_order(gaps, "dataset.missing=impute")
    assert inputs.shape == (60, 2 + 3 + 2)
    assert inputs[3, 1] == 0
    known = inputs[[row for row in train if row != 3], 1]
    torch.testing.assert_close(known.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(known.std(), torch.tensor(1.0))
    assert inputs[5, 2:5].tolist() == [0, 0, 0]
    assert inputs[6, 2:5].sum() == 1


def test_an_indicator_is_one_more_feature_of_each_column_with_gaps(gaps):
    dataset, _ = data_of(gaps, "dataset.missing=indicator")
    inputs, _ = inputs_in_order(gaps, "dataset.missing=indicator")
    assert dataset.shape == (2 + 3 + 2 + 2,)
    assert inputs[:, 7].nonzero().flatten().tolist() == [3]
    assert inputs[:, 8].nonzero().flatten().tolist() == [5]
    assert "which columns have gaps" in " ".join(dataset.notes)


@pytest.mark.parametrize("column", ["rich", "sex"])
def test_a_target_or_a_group_is_never_imputed(gaps, column):
    frame = pd.read_csv(gaps)
    frame.loc[7, column] = None
    frame.to_csv(gaps, index=False)
    with pytest.raises(UserError, match=f"no usable value in column {column} of row 8"):
        compose(settings(gaps, "dataset.group=sex", "dataset.missing=impute"))


def test_infinity_is_no_missing_value(gaps):
    gaps.write_text(gaps.read_text().replace("\n", "\n30,inf,Rome,f,no\n", 1))
    with pytest.raises(UserError, match="no usable value in column wage of row 1: complete the ro"):
        compose(settings(gaps, "dataset.missing=impute"))


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["impute", "indicator"])
def test_new_rows_are_prepared_as_those_of_the_run(gaps, tmp_path, missing):
    words = [*settings(gaps, f"dataset.missing={missing}"), "model=logistic", "epochs=1"]
    words += ["batch_size=16", "save_model=true", f"results_dir={tmp_path}"]
    load_or_run(run_config(words), quiet=True)
    prepare = load_preparation(next(tmp_path.rglob("*.preparation.json")))
    inputs, _ = inputs_in_order(gaps, f"dataset.missing={missing}")
    assert torch.equal(prepare(pd.read_csv(gaps)), inputs)
