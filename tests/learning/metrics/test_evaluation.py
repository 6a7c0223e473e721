import math

import pytest
import torch

from dpbench.learning.metrics.evaluation import evaluate

NAMES = ("male", "female")
BINARY = {
    *("accuracy", "loss", "nll", "brier", "ece", "mce", "mce_min20"),
    *("adaptive_ece", "ece_temperature", "balanced_accuracy", "f1_macro", "auroc"),
    *("accuracy/male", "accuracy/female", "loss/male", "loss/female"),
    "accuracy_gap",
    *("demographic_parity_difference", "equalized_odds_difference"),
}


def example(n=12, classes=2):
    generator = torch.Generator().manual_seed(3)
    outputs = torch.randn(n, classes, generator=generator)
    targets, groups = torch.arange(n) % classes, torch.arange(n) // 2 % 2
    return outputs, torch.rand(n, generator=generator), targets, groups


def test_two_classes_have_every_metric_and_more_have_all_others():
    metrics = evaluate("classification", *example(), NAMES)
    assert metrics.keys() == BINARY
    # Twelve examples fill no bin with twenty.
    assert math.isnan(metrics.pop("mce_min20"))
    assert all(type(value) is float and math.isfinite(value) for value in metrics.values())
    metrics = evaluate("classification", *example(classes=3), NAMES)
    assert BINARY - metrics.keys() == {"demographic_parity_difference", "equalized_odds_difference"}


def test_the_accuracy_gap_is_between_the_best_and_the_worst_group_or_nan():
    metrics = evaluate("classification", *example(), NAMES)
    gap = abs(metrics["accuracy/male"] - metrics["accuracy/female"])
    assert metrics["accuracy_gap"] == pytest.approx(gap)
    assert math.isnan(evaluate("classification", *example(), (*NAMES, "nobody"))["accuracy_gap"])


def test_the_loss_is_the_training_loss_and_the_nll_is_of_the_outputs():
    outputs, losses, targets, groups = example()
    metrics = evaluate("classification", outputs, losses, targets, groups, NAMES)
    assert metrics["loss"] == pytest.approx(losses.mean().item())
    assert metrics["loss/male"] == pytest.approx(losses[groups == 0].mean().item())
    reference = -outputs.log_softmax(dim=1)[range(12), targets].mean().item()
    assert metrics["nll"] == pytest.approx(reference)


def test_the_order_of_the_examples_does_not_matter_but_for_the_temperature():
    parts = example()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    shuffled, usual = (
        evaluate("classification", *them, NAMES)
        for them in ([part[order] for part in parts], parts)
    )
    # A temperature is fitted on the examples at even places.
    assert shuffled.pop("ece_temperature") != usual.pop("ece_temperature")
    assert shuffled == pytest.approx(usual, nan_ok=True)


def test_a_diverged_model_and_no_examples_have_nan_everywhere():
    outputs, losses, targets, groups = example()
    nan = torch.full_like(losses, math.nan)
    metrics = evaluate("classification", outputs * math.nan, nan, targets, groups, NAMES)
    assert all(map(math.isnan, metrics.values()))
    nothing = torch.empty(0, dtype=torch.int64)
    metrics = evaluate("classification", torch.empty(0, 2), torch.empty(0), nothing, nothing, NAMES)
    assert all(map(math.isnan, metrics.values()))


def test_the_fit_has_accuracy_and_loss_as_all_metrics_have_them():
    fitted, metrics = (
        evaluate("classification", *example(), NAMES, held_out=of_test) for of_test in (False, True)
    )
    assert fitted == {
        name: value
        for name, value in metrics.items()
        if name.partition("/")[0] in ("accuracy", "loss")
    }
    assert len(fitted) == 6


def test_shapes_that_disagree_and_groups_without_a_name_are_refused():
    outputs, losses, targets, groups = example()
    with pytest.raises(ValueError, match=r"not \[n, K\]"):
        evaluate("classification", outputs, losses[:1], targets, groups, NAMES)
    with pytest.raises(ValueError, match="outside the 1 named"):
        evaluate("classification", *example(), ("male",))
