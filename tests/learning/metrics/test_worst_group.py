import math

from dpbench.learning.metrics.derived import WORST_GROUP, value_of


def test_the_worst_group_is_that_of_the_tested_groups():
    run = {
        **{"test/accuracy": 0.1, "test/accuracy_gap": 0.0, "train_set/accuracy/a": 0.2},
        **{"test/accuracy/a": 0.9, "test/accuracy/b": 0.7, "test/loss/a": 0.3},
    }
    assert value_of(run, WORST_GROUP) == 0.7


def test_a_group_without_examples_does_not_count_and_a_diverged_run_has_none():
    assert value_of({"test/accuracy/a": 0.9, "test/accuracy/8": math.nan}, WORST_GROUP) == 0.9
    assert math.isnan(value_of({"test/accuracy/a": math.nan}, WORST_GROUP))
