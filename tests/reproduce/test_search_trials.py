from types import SimpleNamespace

import pandas as pd
import pytest

from dpbench.config.table_file import Scatter
from dpbench.reproduce.search_trials import search_trials
from dpbench.tables.conditions import Condition


class Config(dict):
    """What is read of a run's configuration."""

    def __init__(self, results):
        super().__init__(choices={"dataset": "toys"})
        self.results = results


@pytest.fixture
def trials(tmp_path):
    """trials(text): those of a figure of two arms on Wine; text: the search of the second."""

    def read(text):
        (tmp_path / "search").mkdir()
        (tmp_path / "search" / "toy_table1-wine-bam.csv").write_text(text)
        condition = Condition((("dataset", "wine"), ("privacy.epsilon", 3)))
        target = SimpleNamespace(
            config=Config(tmp_path),
            conditions=[condition],
            table=SimpleNamespace(methods=["dpsgd", "bam"]),
        )
        axes = {"x": "test/accuracy", "y": "test/worst_group_accuracy"}
        return search_trials(target, Scatter(**axes, searches="toy_table1"))

    return read


HEAD = "trial,optimizer.lr,validation/accuracy,validation/worst_group_accuracy,failed\n"


def test_every_trial_with_numbers_is_there_in_the_same_order_whatever_the_file_s(trials):
    found = trials(f"{HEAD}2,0.1,0.9,0.8,\n1,1,0.7,0.6,\n3,9,0.5,0.5,diverged\n4,3,0.9,,\n")
    expected = [("wine, epsilon 3", "bam", 0.7, 0.6), ("wine, epsilon 3", "bam", 0.9, 0.8)]
    assert [*found.itertuples(index=False, name=None)] == expected


def test_a_search_without_the_metric_gives_no_trials(trials):
    found = trials("trial,validation/accuracy,failed\n1,0.9,\n")
    assert found.empty
    assert isinstance(found, pd.DataFrame)
