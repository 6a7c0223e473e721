"""z-scores, also of columns that do not vary."""

import numpy as np
import pytest
import torch

from dpbench.learning.data.numeric import deviations, z_scores


def test_scores_have_mean_0_and_deviation_1_however_little_a_column_varies():
    values = np.random.default_rng(0).lognormal(3, 2, (500, 4)) * [1, 1e-9, 1e9, -1]
    expected = (values - values.mean(axis=0)) / values.std(axis=0, ddof=1)
    assert torch.equal(z_scores(values), torch.from_numpy(expected).float())
    seconds = 1.7e9 + np.arange(1000) * 1e-2
    assert z_scores(seconds[:, None]).std().item() == pytest.approx(1)


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -7.3, 1e-300, 123456.789, 1e38])
@pytest.mark.parametrize("rows", [2, 7, 1_000, 100_003])
def test_a_column_that_does_not_vary_has_scores_of_0(value, rows):
    """Its standard deviation is the rounding error of its mean, 1.4e-17 for 0.1."""
    assert deviations(np.full(rows, value)) == 0
    column = np.full((rows, 1), value)
    column[::2] *= 1 + 1e-15
    assert (z_scores(column) == 0).all()
