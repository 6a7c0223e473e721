from dataclasses import dataclass

import pytest
import torch

from dpbench.learning.data.derive.validation import WithValidation
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.probe import probe
from dpbench.learning.data.wine import Wine


@dataclass(frozen=True)
class Texts:
    name = "texts"
    task = "classification"
    shape = (2, 9)
    classes = 3
    groups = ("all",)
    train_size = 10
    notes = ()
    vocabulary = 7

    def load(self, folder, seed):
        raise AssertionError("no data are read")


@pytest.mark.parametrize("views", [1, 4])
def test_images_are_numbers_of_their_shape_in_each_view(views):
    batch = probe(Digits(0.2), views)
    assert batch.inputs.shape == (2, *([4] if views == 4 else []), 1, 8, 8)
    assert batch.inputs.dtype == torch.float32
    assert batch.targets.tolist() == [0, 1]
    assert batch.groups.tolist() == [0, 0]


def test_numbers_are_predicted_as_numbers_and_do_not_depend_on_other_draws():
    assert probe(Wine(320), 1).targets.dtype == torch.float32
    first = probe(Texts(), 1)
    torch.rand(5)
    assert torch.equal(probe(Texts(), 1).inputs, first.inputs)


def test_texts_are_token_numbers_and_types_and_one_ends_in_padding():
    batch = probe(WithValidation(Texts(), 0.2), 1)
    assert batch.inputs.shape == (2, 2, 9)
    assert batch.inputs.dtype == torch.int64
    tokens, types = batch.inputs.unbind(1)
    assert 0 < tokens[0].min() <= tokens.max() < 7
    assert types.unique().tolist() == [0, 1]
    assert tokens[1].eq(0).tolist() == [False] * 5 + [True] * 4
    assert (types[tokens == 0] == 0).all()
