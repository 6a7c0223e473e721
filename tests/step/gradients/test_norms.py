"""Norms are upper bounds, and close ones, of rows of any length and size."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from dpbench.step.gradients.layers.patches import PatchProducts, patches
from dpbench.step.gradients.layers.standardised import Standardisation
from dpbench.step.gradients.norms import (
    NARROW,
    Dyads,
    Recomputed,
    Sum,
    evaluated,
    of_rows,
    squared_norms,
)
from dpbench.step.gradients.position_norms import OuterNorms, gram, squared_norms_of_table


def rows(*shape: int, low: float = -1, high: float = 1) -> torch.Tensor:
    """Numbers of random sizes; in every other example the same one throughout."""
    draw = torch.Generator().manual_seed(sum(shape))
    sizes = 10 ** (low + (high - low) * torch.rand(shape, generator=draw, dtype=torch.float64))
    values = sizes * torch.randn(shape, generator=draw, dtype=torch.float64)
    values[::2] = values[::2].flatten(1)[:, :1].view(-1, *[1] * (len(shape) - 1))
    return values.float()


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 63, 64, 65, NARROW, NARROW + 1, 1000, 100_000])
@pytest.mark.parametrize("high", [0, 6, 9])
def test_a_norm_of_rows_is_an_upper_bound_and_a_close_one(size, high):
    x = rows(64, size, high=high)
    exact, ours = x.double().square().sum(1), squared_norms(x)
    assert ours.dtype == torch.float64
    assert (ours >= exact * (1 - 1e-13)).all()
    assert (ours <= exact * (1 + 1e-5)).all()


def terms_of_layers() -> list:
    """Of every kind and several widths, so that some are computed together and some alone."""
    widths = (1, 5, 5, 200, 200, NARROW, NARROW + 1, 3000, 3072, 70_000)
    x = [rows(16, width, high=6) for width in widths]
    x[2][3], x[7][4], x[8][5] = 3e19, torch.inf, torch.nan
    positions = [(rows(16, t, 30), rows(16, t, 4)) for t in (1, 7, 7)]
    return [
        *map(of_rows, x),
        *(Dyads(a, b, bias) for a, b, bias in zip(x, x[1:], (True, False) * 5, strict=False)),
        *(Sum(OuterNorms(gram(a), gram(b)), of_rows(b.sum(1))) for a, b in positions),
        *(Recomputed(of_rows(a), of_rows(b), of_rows(a), 3.0, 1e-5) for a, b in pairwise(x)),
    ]


@pytest.mark.parametrize("cuda", [False, True])
def test_norms_computed_together_have_the_bits_of_each_alone(monkeypatch, cuda):
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: cuda))
    alone = [evaluated([term])[0] for term in terms_of_layers()]
    for one, other in zip(evaluated(terms_of_layers()), alone, strict=True):
        assert torch.equal(one.nan_to_num(-1), other.nan_to_num(-1))


@pytest.mark.parametrize("size", [10, 1000])
@pytest.mark.parametrize("exponent", [-45, -40, -25, -20])
def test_squares_that_underflow_make_a_norm_no_shorter(size, exponent):
    x = rows(64, size, low=exponent, high=exponent + 1)
    assert (squared_norms(x) >= x.double().square().sum(1) * (1 - 1e-13)).all()


@pytest.mark.parametrize("size", [10, 1000])
def test_values_whose_squares_overflow_have_no_finite_norm(size):
    x = torch.ones(4, size)
    x[:, -1] = torch.tensor([3e19, torch.inf, torch.nan, 1.0])
    assert squared_norms(x).isfinite().tolist() == [False, False, False, True]


@pytest.mark.parametrize("features", [3, 500, 2000])
@pytest.mark.parametrize("positions", [1, 2, 33])
def test_a_norm_of_outer_products_is_an_upper_bound(features, positions):
    a, b = rows(16, positions, features), rows(16, positions, 4)
    exact = (b.double().mT @ a.double()).square().sum((1, 2))
    ours = evaluated([OuterNorms(gram(a), gram(b))])[0]
    assert (ours >= exact * (1 - 1e-13)).all()
    assert (ours <= exact * 1.02).all()


@pytest.mark.parametrize("positions", [1, 2, 33])
def test_products_that_underflow_make_a_norm_of_outer_products_no_smaller(positions):
    a, b = (rows(16, positions, size, low=-14, high=-11) for size in (5, 4))
    exact = (b.double().mT @ a.double()).square().sum((1, 2))
    assert (evaluated([OuterNorms(gram(a), gram(b))])[0] >= exact).all()


@pytest.mark.parametrize("channels", [3, 500])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("image", [(5,), (4, 3)])
@pytest.mark.parametrize("grouped", [("cpu",), ()], ids=["cpu", "gpu"])  # as each device computes
def test_a_norm_of_a_kernel_by_positions_is_an_upper_bound(
    monkeypatch, grouped, image, stride, channels
):
    monkeypatch.setattr("dpbench.step.gradients.layers.patches.GROUPED", grouped)
    kind = nn.Conv1d if len(image) == 1 else nn.Conv2d
    module = kind(channels, 4, 3, stride, padding=1)
    a = rows(16, channels, *image)
    patch = patches(module, a.double(), module.padding)
    b = rows(16, 4, patch.shape[2])
    exact = (b.double() @ patch.mT).square().sum((1, 2))
    grams = PatchProducts(module, module.padding, views=1).gram(a), gram(b.mT)
    # Only the allowance for rounding depends on these, which sums rarely need.
    (norms,) = evaluated([grams[0].norms])
    assert (norms >= patch.norm(dim=1) * (1 - 1e-13)).all()
    ours = evaluated([OuterNorms(*grams)])[0]
    assert (ours >= exact * (1 - 1e-13)).all()
    assert (ours <= exact * 1.02).all()


@pytest.mark.parametrize("features", [3, 500, 2000])
@pytest.mark.parametrize("rows_of_table", [1, 5])
def test_a_norm_of_a_table_is_an_upper_bound(features, rows_of_table):
    b = rows(16, 9, features)
    indices = torch.arange(16 * 9).view(16, 9) % rows_of_table
    table = torch.zeros(16, rows_of_table, features, dtype=torch.float64)
    table.scatter_add_(1, indices.unsqueeze(2).expand_as(b), b.double())
    exact, ours = table.square().sum((1, 2)), squared_norms_of_table(indices, b)
    assert (ours >= exact * (1 - 1e-13)).all()
    assert (ours <= exact * 1.02).all()


@pytest.mark.sampled(54)
@pytest.mark.parametrize("digits", [0, 2, 3, 6])
@pytest.mark.parametrize("size", [2e-4, 1, 1e3])  # just above the floor of the spread, and far
@pytest.mark.parametrize("inputs", [27, 144, 4608])
@pytest.mark.parametrize("offset", [0, 1e2, 1e5])  # the mean of the weights, beside their spread
def test_a_norm_through_standardisation_is_an_upper_bound_where_terms_cancel(
    size, digits, offset, inputs
):
    # Gradients along the weights: standardisation takes them away, but for the last digits.
    draw = torch.Generator().manual_seed(0)
    weight = size * (offset + torch.randn(2, inputs, generator=draw))
    through = Standardisation.of(weight, torch.full((2,), 10.0), 1e-4)
    noise = 10.0**-digits * torch.randn(250, 2, inputs, generator=draw)
    g = weight / size * 10 ** torch.randn(250, 2, 1, generator=draw) * (1 + noise)
    unit, rate, exact = through.unit.double(), through.rate.double(), g.double()
    along = (exact * unit).sum(-1, keepdim=True)
    weights = rate * (exact - exact.mean(-1, keepdim=True) - unit * along)
    right = weights.square().sum((1, 2)) + along.square().sum((1, 2))
    assert (through.squared_norms(g) >= right).all()


def test_in_float64_they_are_as_good_as_exact():
    x = rows(8, 1000).double()
    assert torch.allclose(squared_norms(x), x.square().sum(1), rtol=1e-12)
