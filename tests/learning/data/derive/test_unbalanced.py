import pytest
import torch

from dpbench.learning.data.derive.unbalanced import Unbalanced
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.dutch import Dutch
from dpbench.learning.data.mnist import Mnist
from dpbench.system.errors import UserError

DIGITS = Digits(test_share=0.2)


def test_only_training_examples_of_the_class_get_fewer(tmp_path):
    whole = DIGITS.load(tmp_path, seed=3)
    thinned = Unbalanced(DIGITS, label=8, keep=0.2).load(tmp_path, seed=3)
    others = whole.train.targets != 8
    assert torch.equal(thinned.train.inputs[thinned.train.targets != 8], whole.train.inputs[others])
    assert 0 < (thinned.train.targets == 8).sum() < 60
    assert torch.equal(thinned.test.inputs, whole.test.inputs)


def test_mnist_has_the_size_of_the_paper_and_unknown_sizes_are_refused():
    assert Unbalanced(Mnist(), label=8, keep=0.09).train_size == 54_675
    with pytest.raises(UserError, match="the sizes of the classes of dutch are not published"):
        Unbalanced(Dutch(0.2), label=1, keep=0.2)


@pytest.mark.slow
@pytest.mark.data
def test_about_526_eights_of_mnist_are_left(data_folder):
    data = Unbalanced(Mnist(), label=8, keep=0.09).load(data_folder, seed=0)
    eights = int((data.train.targets == 8).sum())
    assert abs(eights - 0.09 * 5851) < 5 * (0.09 * 0.91 * 5851) ** 0.5
    assert len(data.train) == 60_000 - 5851 + eights
    assert len(data.test) == 10_000


@pytest.mark.parametrize("label", [-1, 10, "8"])
def test_a_class_that_is_not_there_is_refused(label):
    with pytest.raises(UserError, match=r"label, a class of digits, must be .* from 0 to 9"):
        Unbalanced(DIGITS, label=label, keep=0.2)


@pytest.mark.parametrize("keep", [0, 1.5, "0.2"])
def test_a_probability_that_is_none_is_refused(keep):
    with pytest.raises(UserError, match="keep must be a number between 0 and 1"):
        Unbalanced(DIGITS, label=8, keep=keep)
