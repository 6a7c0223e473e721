import math

import pandas as pd
import pytest

from dpbench.learning.metrics.derived import WORST_GROUP, with_worst_group


def test_the_worst_group_is_determined_for_each_run():
    frame = pd.DataFrame(
        {
            "test/accuracy": [0.1, 0.1],
            "test/accuracy_gap": [0.0, 0.0],
            "test/accuracy/a": [0.9, 0.6],
            "test/accuracy/b": [0.7, 0.8],
            "train_set/accuracy/a": [0.2, 0.2],
            "test/loss/a": [0.3, 0.3],
        }
    )
    assert with_worst_group(frame)[WORST_GROUP].tolist() == [0.7, 0.6]
    assert WORST_GROUP not in frame.columns


def test_groups_of_other_data_do_not_count_and_a_diverged_run_has_none():
    frame = pd.DataFrame({"test/accuracy/a": [0.9, None], "test/accuracy/8": [None, None]})
    first, diverged = with_worst_group(frame)[WORST_GROUP].tolist()
    assert first == pytest.approx(0.9)
    assert math.isnan(diverged)
