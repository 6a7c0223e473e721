import pytest
import torch

from dpbench.learning.metrics.calibration import set_metrics
from dpbench.learning.metrics.derived import GAPS, PER_GROUP
from dpbench.learning.metrics.evaluation import evaluate
from dpbench.learning.metrics.registry import REGISTRY, MetricName, parse_name
from dpbench.runs.training.temperature import UNSCALED, LogitScaling


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("test/accuracy", ("test", "accuracy", "")),
        ("train_set/loss/a/b", ("train_set", "loss", "a/b")),
        ("privacy_cost/women", ("", "privacy_cost", "women")),
        ("excessive_risk_gap", ("", "excessive_risk_gap", "")),
        ("strange", ("strange", "", "")),
    ],
)
def test_a_name_has_split_base_and_group(name, parts):
    assert parse_name(name) == MetricName(*parts)


@pytest.mark.parametrize("name", [*(f"{prefix}a" for prefix in PER_GROUP), *GAPS])
def test_metrics_that_compare_two_runs_are_known(name):
    assert parse_name(name).metric.better == "lower"


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_every_metric_of_a_run_is_known(task):
    classes = task == "classification"
    outputs = torch.randn(40, 2 if classes else 1)
    targets = torch.arange(40) % 2 if classes else torch.randn(40)
    groups = torch.arange(40) // 20
    measured = evaluate(task, outputs, torch.rand(40), targets, groups, ("a", "b"))
    assert {parse_name(f"test/{name}").base for name in measured} <= REGISTRY.keys()


def test_every_metric_of_a_private_fit_is_known():
    names = [f"{name}_unscaled" for name in UNSCALED] + [*LogitScaling(2).metrics]
    names += set_metrics(torch.eye(2), torch.arange(2), torch.arange(2), ("a", "b"), 0.5)
    for name in names:
        assert parse_name(f"test/{name}").is_known
