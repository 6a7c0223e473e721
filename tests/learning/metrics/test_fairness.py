import math

import numpy as np
import pytest
import torch
from fairlearn.metrics import demographic_parity_difference, equalized_odds_difference
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.learning.metrics.classification import group_fairness

PARITY, ODDS = "demographic_parity_difference", "equalized_odds_difference"


def outputs_of(predictions):
    """Logits of a model that predicts these classes."""
    return torch.nn.functional.one_hot(torch.as_tensor(predictions), 2).float()


def spread(rates):
    return max(rates) - min(rates)


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(2, 3), st.integers(0, 10_000))
def test_differences_agree_with_rates_by_hand(count, seed):
    draw = np.random.default_rng(seed)
    groups, targets = np.divmod(np.arange(24 * count) % (2 * count), 2)
    predictions = draw.integers(0, 2, len(groups))
    result = group_fairness(
        outputs_of(predictions), torch.as_tensor(targets), torch.as_tensor(groups), count
    )
    parity = spread([predictions[groups == k].mean() for k in range(count)])
    odds = max(
        spread([predictions[(groups == k) & (targets == y)].mean() for k in range(count)])
        for y in (0, 1)
    )
    assert result == pytest.approx({PARITY: parity, ODDS: odds})


@pytest.mark.parametrize("seed", range(10))
def test_they_are_those_of_fairlearn_to_the_bit(seed):
    draw = np.random.default_rng(seed)
    targets, predictions, groups = draw.integers(0, (2, 2, 2 + seed % 3), (300, 3)).T
    arguments = {"y_true": targets, "y_pred": predictions, "sensitive_features": groups}
    assert group_fairness(
        outputs_of(predictions), *map(torch.as_tensor, (targets, groups)), 2 + seed % 3
    ) == {
        PARITY: demographic_parity_difference(**arguments),
        ODDS: equalized_odds_difference(**arguments),
    }


def test_empty_groups_missing_classes_and_divergence_have_no_difference():
    targets = groups = torch.tensor([0, 0])
    assert group_fairness(torch.zeros(2, 3), targets, groups, 2) == {}
    assert group_fairness(torch.zeros(2, 2), targets, groups, 1) == {}
    values = group_fairness(outputs_of([0, 1]), torch.tensor([0, 1]), torch.tensor([0, 0]), 2)
    assert math.isnan(values[PARITY])
    assert math.isnan(values[ODDS])
    values = group_fairness(
        outputs_of([1, 0, 0]), torch.tensor([1, 0, 0]), torch.tensor([0, 0, 1]), 2
    )
    assert values[PARITY] == 0.5
    assert math.isnan(values[ODDS])
    targets, groups = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    values = group_fairness(torch.full((4, 2), math.nan), targets, groups, 2)
    assert all(map(math.isnan, values.values()))
