"""The part held out for a temperature: a coin for each example, that no other example moves."""

from dataclasses import dataclass, replace

import pytest
import torch

from dpbench.learning.data.dataset import calibration_size_of
from dpbench.learning.data.derive.calibration import WithCalibration
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.examples import Data, Split
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.system.errors import UserError

FITTED = ["temperature=private", "temperature.share=0.3"]


@dataclass(frozen=True)
class Numbered(Digits):
    """`number` examples, each of which is its number, and a test set."""

    number: int = 1000

    def load(self, folder, seed):
        each = torch.arange(self.number)
        return Data(*(Split(n.float().unsqueeze(1), n, n) for n in (each, -each)))


def parts(number, share=0.3, seed=0, base=Numbered):
    data = WithCalibration(base(0.2, number), share).load(None, seed)
    return [set(split.targets.tolist()) for split in (data.train, data.calibration)]


def test_each_example_is_in_one_part_and_the_test_set_in_none():
    train, held = parts(1000)
    assert train | held == set(range(1000))
    assert not train & held
    data, plain = (d.load(None, 0) for d in (WithCalibration(Numbered(0.2), 0.3), Numbered(0.2)))
    assert torch.equal(data.test.targets, plain.test.targets)


def test_one_more_example_changes_only_its_own_part():
    """As the ledger's adjacency needs; a permutation of the examples fails it."""
    for number in range(200, 260):
        (train, held), (more_train, more_held) = parts(number), parts(number + 1)
        assert {number} in (more_train - train, more_held - held)
        assert len(more_train - train) + len(more_held - held) == 1
        assert train <= more_train
        assert held <= more_held


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_coins_fall_with_the_share_as_their_probability(share):
    held = torch.zeros(400)
    for seed in range(200):
        held[list(parts(400, share, seed)[1])] += 1
    deviation = (200 * share * (1 - share)) ** 0.5
    assert abs(held.mean() - 200 * share) < 4 * deviation / 20
    assert (held - 200 * share).abs().max() < 5 * deviation
    assert held.std() == pytest.approx(deviation, rel=0.15)


def test_sizes_are_public_and_a_share_lies_between_0_and_1():
    held_out = WithCalibration(Digits(0.2), 0.3)
    assert (held_out.train_size, held_out.calibration_size) == (1438 - 431, 431)
    assert calibration_size_of(Digits(0.2)) == 0
    data = held_out.load(None, 0)
    assert len(data.calibration) != 431
    assert len(data.train) + len(data.calibration) == 1438
    for share in (0, 1, True):
        with pytest.raises(UserError, match=r"temperature.share must be a number between 0 and 1"):
            WithCalibration(Digits(0.2), share)


def test_a_validation_split_is_of_the_rest_and_normalization_of_every_part(tmp_path):
    run = build(compose([*FITTED, "validation=0.2", "normalization=half"]))
    assert calibration_size_of(run.dataset) == 431
    assert run.dataset.train_size == 1007 - 201
    data = run.load(tmp_path)
    assert data.tested_on == "validation"
    assert len(data.train) + len(data.test) + len(data.calibration) == 1438
    assert data.calibration.normalize is data.train.normalize is not None


def test_mislabelled_targets_are_not_in_the_part(tmp_path):
    run = build(compose([*FITTED, "mislabelled=100"]))
    data = run.load(tmp_path)
    calibrated = replace(run.dataset.base).load(tmp_path, 0)
    assert torch.equal(data.calibration.targets, calibrated.calibration.targets)
    assert len(data.train) == len(calibrated.train) - int((~data.targets.included).sum())
