"""Gradients with a common vector, against the same gradients with it added row by row."""

import pytest
import torch

from dpbench.step.gradients.engine import MaterialisedGradients
from dpbench.step.gradients.parameters import Layer
from dpbench.step.methods.fairlens import TranslatedGradients

LAYERS = (Layer("one", slice(0, 3)), Layer("two", slice(3, 7)))


@pytest.fixture
def pair():
    draw = torch.Generator().manual_seed(0)
    stack = torch.randn(5, 7, generator=draw, dtype=torch.float64)
    vector = torch.randn(7, generator=draw, dtype=torch.float64)
    losses = torch.rand(5, generator=draw, dtype=torch.float64)
    plain = MaterialisedGradients(losses, stack, LAYERS)
    return TranslatedGradients(plain, vector, LAYERS), MaterialisedGradients(
        losses, stack + vector, LAYERS
    )


@pytest.mark.parametrize("what", ["losses", "norms", "layer_norms"])
def test_the_norms_are_of_the_translated_gradients(pair, what):
    ours, right = (getattr(gradients, what) for gradients in pair)
    assert torch.allclose(ours, right)


@pytest.mark.parametrize("shape", [(5,), (5, 2)])
def test_its_weighted_sums_hold_the_vector_as_often_as_the_factors_say(pair, shape):
    factors = torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ours, right = (gradients.weighted_sum(factors) for gradients in pair)
    assert torch.allclose(ours, right)


def test_its_inner_products_and_rows_hold_the_vector(pair):
    ours, right = pair
    assert torch.allclose(ours.dot(torch.ones(7).double()), right.dot(torch.ones(7).double()))
    assert torch.allclose(ours.stack(), right.stack())
