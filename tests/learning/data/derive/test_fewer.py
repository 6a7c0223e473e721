import pytest
import torch

from dpbench.learning.data.derive.features import with_features
from dpbench.learning.data.derive.fewer import Fewer
from dpbench.learning.data.derive.scattering import Scattering
from dpbench.learning.data.derive.unbalanced import Unbalanced
from dpbench.learning.data.digits import Digits
from dpbench.system.errors import UserError

DIGITS = Digits(test_share=0.2)


def test_the_first_examples_are_left_and_no_more_than_there_are(tmp_path):
    whole, fewer = DIGITS.load(tmp_path, 3), Fewer(DIGITS, 50, 20).load(tmp_path, 3)
    assert torch.equal(fewer.train.inputs, whole.train.inputs[:50])
    assert torch.equal(fewer.test.targets, whole.test.targets[:20])
    with pytest.raises(UserError, match=r"dataset\.train must be a whole number from 1 to 1438"):
        Fewer(DIGITS, 1439, 20)


def test_features_of_the_whole_are_computed_once_for_all_choices(tmp_path):
    features = Scattering(depth=1)
    whole = with_features(DIGITS, features, "cpu").load(tmp_path, 0)
    fewer = with_features(Fewer(DIGITS, 50, 20), features, "cpu").load(tmp_path, 0)
    thinned = with_features(Unbalanced(DIGITS, 8, 0.2), features, "cpu").load(tmp_path, 0)
    assert torch.equal(fewer.train.inputs, whole.train.inputs[:50])
    others = thinned.train.targets != 8
    assert torch.equal(thinned.train.inputs[others], whole.train.inputs[whole.train.targets != 8])
    assert len(list((tmp_path / "features").glob("*.npy"))) == 2  # training and test examples
