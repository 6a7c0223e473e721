import pytest

from dpbench.comparison.dashboard.values import metric_entry, sorted_names


@pytest.mark.parametrize(
    ("name", "kind", "better", "percent"),
    [
        ("test/accuracy", "utility", "higher", True),
        ("validation/loss", "utility", "lower", False),
        ("test/ece", "calibration", "lower", True),
        ("test/accuracy_gap", "fairness", "lower", True),
        ("membership_advantage", "privacy", "lower", True),
        ("test/accuracy/female", "group", "higher", True),
        ("test/new", "utility", None, False),
        ("strange", "utility", None, False),
    ],
)
def test_what_is_known_of_a_metric(name, kind, better, percent):
    found = metric_entry(name)
    assert (found["kind"], found["better"], found["percent"]) == (kind, better, percent)
    assert found["label"]


def test_the_test_set_comes_first_and_other_splits_are_said():
    assert metric_entry("validation/ece")["label"] == "ECE (validation)"
    names = {"validation/accuracy", "test/zeta", "test/ece", "test/accuracy/b", "test/accuracy"}
    expected = ["test/accuracy", "test/accuracy/b", "test/ece", "test/zeta", "validation/accuracy"]
    assert sorted_names(names) == expected
