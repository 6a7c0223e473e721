"""Mislabelled targets: the same in all runs, and trained on by fair coins of each."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from dpbench.learning.data.california import California
from dpbench.learning.data.dataset import people_of
from dpbench.learning.data.derive.calibration import WithCalibration
from dpbench.learning.data.derive.mislabelled import Mislabelled
from dpbench.learning.data.derive.normalization import Normalization, with_transform
from dpbench.learning.data.digits import Digits
from dpbench.learning.models.predict import predict
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.runs.records.digest import digest
from dpbench.runs.records.publish import without_uncovered
from dpbench.runs.training.plan import plan
from dpbench.runs.training.provenance import ResourceUsage
from dpbench.runs.training.start import start_training
from dpbench.runs.training.trainer import fit
from dpbench.system.errors import UserError

DIGITS = Digits(test_share=0.2)
HUNDRED = Mislabelled(DIGITS, 100)


def rows(split):
    """All examples as sorted rows of pixels and label."""
    both = torch.cat([split.inputs.flatten(1), split.targets[:, None].float()], 1)
    return sorted(map(tuple, both.tolist()))


def test_split_targets_and_wrong_labels_are_the_same_for_all_seeds(tmp_path):
    first, other = (HUNDRED.load(tmp_path, seed) for seed in (0, 1))
    assert rows(first.test) == rows(other.test) == rows(DIGITS.load(tmp_path, 0).test)
    assert torch.equal(first.targets.examples.inputs, other.targets.examples.inputs)
    assert torch.equal(first.targets.examples.targets, other.targets.examples.targets)
    assert not torch.equal(first.targets.included, other.targets.included)


def test_every_target_has_a_wrong_label_and_the_group_that_it_had(tmp_path):
    examples = HUNDRED.load(tmp_path, 0).targets.examples
    assert (examples.targets != examples.groups).all()  # the groups of digits are their classes
    assert torch.bincount(examples.groups).tolist() == [10] * 10
    assert len(set(examples.targets.tolist())) == 10


def test_trained_on_are_all_other_examples_and_the_included_targets(tmp_path):
    whole, data = DIGITS.load(tmp_path, 0).train, HUNDRED.load(tmp_path, 5)
    included = data.targets.examples.take(data.targets.included)
    assert len(data.train) == len(whole) - 100 + len(included)
    assert rows(included) == rows(data.train.take(torch.arange(len(data.train))[-len(included) :]))
    untouched = set(rows(whole)) & set(rows(data.train))
    assert len(untouched) == len(whole) - 100


@pytest.mark.slow
def test_coins_are_fair_for_every_run_and_every_target(tmp_path):
    design = np.stack([HUNDRED.load(tmp_path, seed).targets.included for seed in range(60)])
    for sums, coins in ((design.sum(0), 60), (design.sum(1), 100)):
        assert stats.binom.ppf(1e-6, coins, 0.5) <= sums.min()
        assert sums.max() <= stats.binom.ppf(1 - 1e-6, coins, 0.5)
    assert abs(np.corrcoef(design)[np.triu_indices(60, 1)]).max() < 0.6


def test_epsilon_and_names_are_those_of_the_run_without_targets():
    with_targets = build(compose(["mislabelled=100"]))
    assert plan(with_targets).ledger == plan(build(compose([]))).ledger
    assert "wrong label" in with_targets.notes[-1]
    assert digest(compose([])) == digest(compose(["mislabelled=null"]))
    assert digest(compose([])) != digest(compose(["mislabelled=100"]))
    assert build(compose(["mislabelled=null"])).dataset == DIGITS
    with pytest.raises(UserError, match="no classes to mislabel"):
        Mislabelled(California(test_size=2064), 100)


@pytest.mark.slow
def test_the_record_has_the_losses_of_the_targets_and_publishing_leaves_them_out(tmp_path):
    run = build(compose(["mislabelled=100", "epochs=1", "seed=3"]))
    record, targets = fit(run, tmp_path, quiet=True), run.load(tmp_path).targets
    columns = record.diagnostics
    assert columns["target/included"] == targets.included.long().tolist()
    assert columns["target/group"] == targets.examples.groups.tolist()
    data = run.load(tmp_path)
    training = start_training(run, plan(run), data, ResourceUsage("cpu"))
    for _ in training:
        pass
    engine = training.step.engine
    losses = predict(engine.model, engine.loss, targets.examples)[1]
    assert columns["target/loss"] == losses.tolist()
    assert record.covered["diagnostics"] is False
    assert without_uncovered(record).diagnostics == {}


def test_targets_are_held_out_of_a_validation_split(tmp_path):
    data = build(compose(["mislabelled=50", "validation=0.25"])).load(tmp_path)
    assert data.tested_on == "validation"
    held_out = {row[:-1] for row in rows(data.test)}
    assert not held_out & {row[:-1] for row in rows(data.targets.examples)}


def test_targets_are_normalised_like_all_images(tmp_path):
    data = with_transform(HUNDRED.load(tmp_path, 0), Normalization([0.5], [0.25]))
    inputs = data.targets.examples.at(torch.arange(3)).inputs
    assert torch.equal(inputs, (data.targets.examples.inputs[:3] - 0.5) / 0.25)


@pytest.mark.parametrize("number", [9, 720, 1.5])
def test_a_number_of_targets_out_of_range_is_refused(number):
    with pytest.raises(UserError, match="mislabelled"):
        Mislabelled(DIGITS, number)


def test_the_examples_of_people_keep_their_people(tmp_path):
    class Owned(Digits):
        train_people = 50

        def load(self, folder, seed):
            data = super().load(folder, seed)
            return replace(data, train=replace(data.train, people=data.train.inputs.sum((1, 2, 3))))

    mislabelled = Mislabelled(Owned(test_share=0.2), 100)
    assert people_of(mislabelled) == people_of(WithCalibration(mislabelled.base, 0.1)) == 50
    train = mislabelled.load(tmp_path, 0).train
    assert torch.equal(train.people, train.inputs.sum((1, 2, 3)))
