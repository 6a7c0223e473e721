import math

import pytest
import torch
from sklearn import metrics as theirs

from dpbench.learning.metrics.evaluation import evaluate
from dpbench.learning.models.architecture import squared_error

NAMES = ("low", "high")


def example(n=20):
    generator = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(n, 1, generator=generator), torch.randn(n, generator=generator)
    return outputs, squared_error(outputs, targets), targets, torch.arange(n) % 2


def test_scikit_learn_has_the_same_numbers():
    outputs, losses, targets, groups = example()
    ours, pair = evaluate("regression", outputs, losses, targets, groups, NAMES), (targets, outputs)
    assert ours == pytest.approx(
        {
            "loss": theirs.mean_squared_error(*pair),
            "mse": theirs.mean_squared_error(*pair),
            "rmse": theirs.root_mean_squared_error(*pair),
            "mae": theirs.mean_absolute_error(*pair),
            "r2": theirs.r2_score(*pair),
            "loss/low": theirs.mean_squared_error(targets[::2], outputs[::2]),
            "loss/high": theirs.mean_squared_error(targets[1::2], outputs[1::2]),
        }
    )


def test_the_loss_is_the_training_loss_and_the_error_is_of_its_own_example():
    outputs, losses, targets, groups = example()
    ours = evaluate("regression", outputs, 3 * losses, targets, groups, NAMES)
    assert ours["loss"] == pytest.approx(3 * ours["mse"])
    outputs, targets = torch.tensor([[1.0], [5.0]]), torch.tensor([3.0, 4.0])
    assert squared_error(outputs, targets).tolist() == [4, 1]


def test_predicting_the_mean_explains_nothing_and_equal_targets_leave_nothing_to_explain():
    _, _, targets, groups = example()
    outputs = targets.mean().expand(20, 1)
    losses = squared_error(outputs, targets)
    assert evaluate("regression", outputs, losses, targets, groups, NAMES)["r2"] == pytest.approx(0)
    same = torch.ones(20)
    assert math.isnan(evaluate("regression", outputs, losses, same, groups, NAMES)["r2"])


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_diverged_model_and_no_examples_have_nan_everywhere(wrong):
    outputs, losses, targets, groups = example()
    diverged = (outputs * wrong, losses * math.nan, targets, groups)
    nothing = (torch.empty(0, 1), torch.empty(0), torch.empty(0), groups[:0])
    for parts in (diverged, nothing):
        assert all(map(math.isnan, evaluate("regression", *parts, NAMES).values()))


def test_shapes_that_disagree_and_groups_without_names_are_refused():
    outputs, losses, targets, groups = example()
    with pytest.raises(ValueError, match=r"not \[n, 1\]"):
        evaluate("regression", outputs.expand(20, 2), losses, targets, groups, NAMES)
    with pytest.raises(ValueError, match="outside the 1 named"):
        evaluate("regression", outputs, losses, targets, groups, NAMES[:1])


def test_the_fit_has_the_losses_as_all_metrics_have_them():
    metrics = evaluate("regression", *example(), NAMES)
    losses = {name: value for name, value in metrics.items() if name.startswith("loss")}
    assert evaluate("regression", *example(), NAMES, held_out=False) == losses
    assert len(losses) == 3
