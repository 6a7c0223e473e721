import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    f1_score,
    log_loss,
    roc_auc_score,
)

from dpbench.learning.metrics import classification
from dpbench.learning.metrics.evaluation import evaluate
from dpbench.learning.metrics.registry import MODULES

MEANS = ("balanced_accuracy", "f1_macro", "auroc")
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
    # scikit-learn takes the logarithm of a probability near 1, which has 16 digits.
    assert math.isclose(classification.mean(losses), reference, rel_tol=1e-9, abs_tol=1e-15)


@pytest.mark.slow
@settings(deadline=None)
@given(
    n=st.integers(6, 60), classes=st.integers(2, 5), seed=st.integers(0, 10_000), ties=st.booleans()
)
def test_means_over_classes_agree_with_scikit_learn(n, classes, seed, ties):
    generator = torch.Generator().manual_seed(seed)
    outputs = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    outputs = outputs.round() if ties else outputs
    targets = torch.cat([torch.arange(classes), torch.randint(classes, (n,), generator=generator)])
    outputs = torch.cat([outputs[:classes], outputs])
    found = class_metrics(outputs, targets)
    predicted, scores = outputs.argmax(dim=1), outputs.softmax(dim=1).numpy()
    curves = scores[:, 1] if classes == 2 else scores
    expected = {
        "balanced_accuracy": balanced_accuracy_score(targets, predicted),
        "f1_macro": f1_score(targets, predicted, average="macro"),
        "auroc": roc_auc_score(targets, curves, multi_class="ovr", labels=range(classes)),
    }
    assert found == pytest.approx(expected, rel=1e-12)


def class_metrics(outputs, targets):
    compute = {name: MODULES["classification"][name].compute for name in MEANS}
    return {name: of(outputs, targets, torch.zeros_like(targets)) for name, of in compute.items()}


def test_means_over_classes_are_nan_without_a_class_and_a_half_by_chance():
    outputs, targets = torch.eye(3), torch.tensor([0, 1, 1])
    assert all(map(math.isnan, class_metrics(outputs, targets).values()))
    targets = torch.tensor([0, 1])
    broken = torch.tensor([[1.0, math.inf], [0.0, 1.0]])
    assert all(map(math.isnan, class_metrics(broken, targets).values()))
    targets = torch.tensor([0, 1, 0, 1])
    same = class_metrics(torch.ones(4, 2), targets)
    assert (same["auroc"], same["balanced_accuracy"]) == (0.5, 0.5)
    right = class_metrics(torch.eye(2)[targets], targets)
    assert (right["auroc"], right["f1_macro"]) == (1.0, 1.0)


def test_outputs_that_are_not_finite_are_no_prediction():
    targets = torch.tensor([1, 0, 0])
    for values in (
        classification.correct(NAN_ROW, targets),
        classification.negative_log_likelihood(NAN_ROW, targets),
    ):
        assert values.isnan().tolist() == [False, True, False]
        assert math.isnan(classification.mean(values))
    outputs = torch.tensor([[math.inf, 0.0]])
    assert classification.correct(outputs, torch.tensor([0])).isnan().all()


def means(values, groups, names):
    given = (torch.zeros(len(groups), 2), values, torch.zeros_like(groups), groups)
    measured = evaluate("classification", *given, names, held_out=False)
    return [measured[f"loss/{name}"] for name in names]


def test_group_means_are_over_examples_and_nan_for_an_empty_group_alone():
    values = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0])
    groups = torch.tensor([0, 0, 1, 1, 1])
    np.testing.assert_allclose(means(values, groups, ["a", "b"]), [1 / 2, 2 / 3])
    a, b, c = means(torch.ones(2), torch.tensor([0, 2]), ["a", "b", "c"])
    assert a == c == 1
    assert math.isnan(b)
    a, b = means(torch.tensor([math.nan, 1.0]), torch.tensor([0, 1]), ["a", "b"])
    assert math.isnan(a)
    assert b == 1
