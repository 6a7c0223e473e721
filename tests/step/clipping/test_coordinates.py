"""Clipping by coordinate: its bound holds in each, and is reached in all at once."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.clipping import Coordinates
from dpbench.step.gradients import make_engine
from dpbench.step.gradients.engine import MaterialisedGradients

cheap = settings(derandomize=True, deadline=None, max_examples=30)
rows = st.lists(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), min_size=1, max_size=5)


def clipped_sum(clip: Coordinates, gradients: torch.Tensor) -> torch.Tensor:
    stacked = MaterialisedGradients(gradients.new_zeros(len(gradients)), gradients, ())
    groups = torch.zeros(len(gradients), dtype=torch.long)
    factors = clip.factors(clip.norms(stacked), groups)
    return clip.finish(clip.reduce(stacked, factors.masked_fill(~stacked.norms.isfinite(), 0)))


@given(rows, st.floats(0.01, 100))
@cheap
def test_one_example_moves_no_coordinate_by_more_than_the_bound(gradients, bound):
    gradients = torch.tensor(gradients, dtype=torch.float64)
    clip = Coordinates(bound, 4)
    whole = clipped_sum(clip, gradients)
    for i in range(len(gradients)):
        moved = whole - clipped_sum(clip, torch.cat([gradients[:i], gradients[i + 1 :]]))
        assert moved.abs().max() <= bound * (1 + 1e-9)
        assert moved.norm() <= clip.sensitivity.bound * (1 + 1e-9)


def test_the_bound_holds_in_every_coordinate_once_their_number_is_known():
    clip = Coordinates(0.3, 4)
    assert clipped_sum(clip, torch.full((1, 4), -1e9)).norm() == pytest.approx(
        clip.sensitivity.bound
    )
    clip = Coordinates(0.5, 9).scaled(4)
    assert (clip.bound, clip.sensitivity.bound) == (2.0, 6.0)
    assert Coordinates(1.0).sensitivity.bound == math.inf


@given(rows)
@cheap
def test_coordinates_are_clipped_as_by_numpy(gradients):
    gradients = torch.tensor(gradients, dtype=torch.float64)
    expected = torch.tensor(gradients.numpy().clip(-2, 2).sum(0))
    assert torch.allclose(clipped_sum(Coordinates(2.0), gradients), expected)


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_an_example_that_is_not_finite_adds_nothing(bad):
    gradients = torch.tensor([[1.0, 2, 3, 4], [5, bad, 5, 5]])
    assert clipped_sum(Coordinates(10.0), gradients).tolist() == [1, 2, 3, 4]


def test_a_layer_in_many_blocks_has_the_sum_of_the_layer_in_one():
    """So wide that the gradients of its weights are never held at once."""
    model = nn.Sequential(nn.Linear(300, 40), nn.ReLU(), nn.Linear(40, 3)).double()
    inputs = torch.randn(64, 300, generator=torch.Generator().manual_seed(1)).double()
    batch = Batch(inputs, torch.arange(64) % 3, torch.zeros(64, dtype=torch.long))
    gradients = make_engine("ghost", model, cross_entropy, batch)(batch)
    assert len(list(gradients.blocks())) > len(list(model.parameters()))
    factors = torch.ones(64).double()
    factors[5] = 0
    expected = (gradients.stack() * factors.unsqueeze(1)).numpy().clip(-1e-3, 1e-3).sum(0)
    ours = Coordinates(1e-3).reduce(gradients, factors)
    assert torch.allclose(ours, torch.tensor(expected))
