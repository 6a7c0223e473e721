import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss

from dpbench.metrics import classification

NAN_ROW = torch.tensor([[0.0, 2.0], [math.nan, 1.0], [3.0, 0.0]])


@pytest.mark.slow
@settings(deadline=None)
@given(n=st.integers(1, 40), classes=st.integers(2, 5), seed=st.integers(0, 10_000))
def test_accuracy_and_nll_agree_with_scikit_learn(n, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    outputs = 4 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    targets = torch.randint(classes, (n,), generator=generator)
    probabilities = outputs.softmax(dim=1).numpy()
    right = classification.mean(classification.correct(outputs, targets))
    losses = classification.negative_log_likelihood(outputs, targets)
    assert math.isclose(right, accuracy_score(targets, probabilities.argmax(axis=1)))
    reference = log_loss(targets, probabilities, labels=range(classes))
    assert math.isclose(classification.mean(losses), reference, rel_tol=1e-9)


def test_an_example_without_finite_outputs_has_no_prediction():
    targets = torch.tensor([1, 0, 0])
    for values in (
        classification.correct(NAN_ROW, targets),
        classification.negative_log_likelihood(NAN_ROW, targets),
    ):
        assert values.isnan().tolist() == [False, True, False]
        assert math.isnan(classification.mean(values))


def test_infinite_outputs_are_not_a_prediction_either():
    outputs = torch.tensor([[math.inf, 0.0]])
    assert classification.correct(outputs, torch.tensor([0])).isnan().all()


def test_group_means_are_over_examples():
    values = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0])
    groups = torch.tensor([0, 0, 1, 1, 1])
    means = classification.mean_per_group(values, groups, ["a", "b"])
    np.testing.assert_allclose([means["a"], means["b"]], [1 / 2, 2 / 3])


def test_an_empty_group_has_nan_not_zero():
    means = classification.mean_per_group(torch.ones(2), torch.tensor([0, 2]), ["a", "b", "c"])
    assert means["a"] == means["c"] == 1
    assert math.isnan(means["b"])


def test_a_nan_stays_within_its_group():
    values = torch.tensor([math.nan, 1.0])
    means = classification.mean_per_group(values, torch.tensor([0, 1]), ["a", "b"])
    assert math.isnan(means["a"])
    assert means["b"] == 1
