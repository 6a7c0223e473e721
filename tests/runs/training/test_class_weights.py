"""Weights of classes in the loss: public ones, and those by counts that the ledger has."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.learning.data.examples import Split
from dpbench.learning.models.architecture import ClassWeighted, cross_entropy
from dpbench.privacy.accountants import rdp
from dpbench.privacy.ledger import GaussianMechanism
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.runs.records.reading import read
from dpbench.runs.training.class_weights import balanced, noisy_counts
from tests.runs.training.small_runs import keyed

SMALL = ["model=logistic", "epochs=1", "batch_size=256", "privacy=noise1"]


def split(targets, people=None):
    targets = torch.tensor(targets)
    return Split(targets.float().unsqueeze(1), targets, torch.zeros_like(targets), people=people)


def test_a_loss_is_that_of_torch_with_weights_and_ones_change_nothing():
    outputs, targets = torch.randn(9, 3), torch.arange(9) % 3
    weights = torch.tensor([1.0, 5.0, 0.5], dtype=torch.float64)
    expected = torch.nn.functional.cross_entropy(
        outputs, targets, weight=weights.float(), reduction="none"
    )
    assert torch.equal(ClassWeighted(weights)(outputs, targets), expected)
    ones = ClassWeighted(torch.ones(3, dtype=torch.float64))
    assert torch.equal(ones(outputs, targets), cross_entropy(outputs, targets))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=2, max_size=9))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_one_row_or_one_person_moves_the_counts_by_at_most_one(rows):
    targets, owners = [row[0] for row in rows], torch.tensor([row[1] for row in rows])

    def counts(targets, people=None):
        return noisy_counts(split(targets, people), 3, 1e-9, keyed())

    assert (counts(targets) - counts(targets[1:])).norm() <= 1 + 1e-6
    others = owners != owners[0]
    left = [target for target, other in zip(targets, others, strict=True) if other]
    rest = counts(left, owners[others]) if left else torch.zeros(3)
    assert (counts(targets, owners) - rest).norm() <= 1 + 1e-6


def test_the_noise_of_counts_has_the_scale_that_is_asked_for(variance_p):
    noise = [noisy_counts(split([0, 1]), 4, 5.0, keyed(key)) for key in range(250)]
    noise = torch.cat([one - torch.tensor([1, 1, 0, 0]) for one in noise])
    assert variance_p(noise, 5.0) > 1e-3
    assert variance_p(noise, 10 / 3) < 1e-6
    assert variance_p(noise, 7.5) < 1e-6


def test_balanced_weights_are_inverse_to_counts_down_to_the_noise():
    weights = balanced(torch.tensor([900.0, 90.0, 10.0]), 1.0)
    assert weights.tolist() == pytest.approx([1 / 90, 1 / 9, 1])
    assert balanced(torch.tensor([900.0, -30.0]), 20.0).tolist() == pytest.approx([2 / 45, 1])


@pytest.fixture
def rare(tmp_path):
    draws = np.random.default_rng(0)
    x = draws.normal(size=(1500, 3))
    y = np.where(x[:, 0] + draws.normal(size=1500) > 1.8, "sick", "well")
    pd.DataFrame(x, columns=list("abc")).assign(y=y).to_csv(tmp_path / "rare.csv", index=False)
    return [
        *("dataset=csv", f"dataset.file={tmp_path / 'rare.csv'}", "dataset.target=y"),
        *("model=logistic", "batch_size=100", "epochs=10", "optimizer.lr=1", "privacy=noise1"),
        *("privacy.delta=1e-4", f"results_dir={tmp_path}"),
    ]


@pytest.mark.slow
def test_a_rare_class_is_found_and_the_ledger_has_what_the_counts_cost(rare):
    plain, public, counted = (
        read(load_or_run(run_config([*rare, *more]), quiet=True))
        for more in ([], ["class_weights=[1,0.125]"], ["class_count_noise_multiplier=20"])
    )
    for weighted in (public, counted):
        assert (
            weighted.metrics["test/balanced_accuracy"]
            > plain.metrics["test/balanced_accuracy"] + 0.1
        )
    assert public.privacy["rdp"] == plain.privacy["rdp"] < counted.privacy["rdp"]
    assert "measured with noise, and epsilon pays for it" in " ".join(counted.privacy["notes"])


def test_a_plan_pays_for_counts_and_older_runs_keep_their_names():
    run, planned = prepare(run_config([*SMALL, "class_count_noise_multiplier=20"]))
    plain = prepare(run_config(SMALL))[1]
    ((step, times),) = planned.once.entries
    assert (step.releases[0].mechanism, times) == (GaussianMechanism(20), 1)
    assert rdp(planned.ledger, 1e-5) > rdp(plain.ledger, 1e-5)
    config = run_config(SMALL).plain
    older = {key: value for key, value in config.items() if not key.startswith("class_")}
    assert digest(older) == digest(config) != digest(run.config)
