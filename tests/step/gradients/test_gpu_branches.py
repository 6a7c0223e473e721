"""What an engine does on a GPU gives what the plain loop gives, in the memory of a processor."""

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import ENGINES, Parameters
from dpbench.step.gradients.layers import patches


class Positions(nn.Module):
    """Linear layers over positions, whose outputs change in place."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3, bias=False)
        self.norm = nn.LayerNorm(5)

    def forward(self, x):
        x = x.flatten(2).mT
        return self.last(self.norm(self.first(x).mul_(2).tanh_())).mean(1)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(6, 40, 3, padding=1),  # one with few positions and many weights, by positions
        nn.GroupNorm(4, 40),
        nn.ReLU(inplace=True),
        nn.Conv2d(40, 40, 3, padding=2, dilation=2),
        nn.Conv2d(40, 6, (3, 1), stride=2, groups=2),
        nn.Flatten(),
        nn.Linear(12, 3),
    )


@pytest.fixture(params=[Positions, convolutions])
def model(request):
    torch.manual_seed(0)
    return request.param()


@pytest.fixture(params=[False, True])
def not_finite(request):
    return request.param


@pytest.mark.parametrize("layerwise", [False, True])
def test_norms_and_sums_are_those_of_the_loop(monkeypatch, model, not_finite, layerwise):
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(8, 6, 4, 4, generator=draw)
    if not_finite:
        inputs[2] = torch.inf
    batch = Batch(inputs, torch.arange(8) % 3, torch.zeros(8, dtype=torch.int64))
    expected = ENGINES["loop"](model, cross_entropy, Parameters(model))(batch)
    engine = ENGINES["ghost"](model, cross_entropy, Parameters(model))
    engine(batch)  # rows are followed on a processor
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(patches, "GROUPED", ())
    gradients = engine(batch)
    kept = torch.ones(8, dtype=torch.bool)
    kept[2] = not not_finite
    norms, exact = gradients.norms.double()[kept], expected.norms.double()[kept]
    assert (norms >= exact * (1 - 1e-6)).all()
    assert torch.allclose(norms, exact, rtol=1e-4)
    assert gradients.norms.isfinite()[2] == kept[2]
    shape = gradients.layer_norms.shape if layerwise else (8,)
    factors = torch.rand(shape, generator=draw)
    factors[2] = 0
    ours, right = gradients.weighted_sum(factors), expected.weighted_sum(factors.double())
    assert torch.allclose(ours.double(), right.double(), rtol=1e-3, atol=1e-5)
