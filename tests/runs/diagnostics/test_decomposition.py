import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.runs.diagnostics.batch_bias import cosine, decompose

seeds, sizes = st.integers(0, 10_000), st.integers(1, 40)


def vectors(seed, size, count=2):
    draw = torch.Generator().manual_seed(seed)
    scales = 10 ** torch.empty(count, 1, dtype=torch.float64).uniform_(-4, 4, generator=draw)
    return torch.randn(count, size, generator=draw, dtype=torch.float64) * scales


@settings(deadline=None)
@given(seeds, sizes)
def test_parts_are_lengths_whose_squares_add_up_and_a_cosine_is_that_of_torch(seed, size):
    split = decompose(*vectors(seed, size))
    whole = split.magnitude**2 + split.direction**2
    assert whole.item() == pytest.approx(split.bias.item() ** 2, rel=1e-12)
    c, g = vectors(seed, size)
    split = decompose(c, g)
    projection = torch.outer(g, g) / (g @ g)
    turned = c - projection @ c
    scale = max(c.norm(), g.norm()).item()
    assert split.bias.item() == pytest.approx((c - g).norm().item())
    longer = (projection @ (c - g)).norm().item()
    assert split.magnitude.item() == pytest.approx(longer, abs=1e-12 * scale)
    assert split.direction.item() == pytest.approx(turned.norm().item(), abs=1e-12 * scale)
    assert (split.scale * g + turned - c).norm() < 1e-12 * scale
    u, v = vectors(seed, size)
    expected = torch.cosine_similarity(u, v, dim=0, eps=1e-30).item()
    assert cosine(u, v).item() == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(seeds, sizes)
def test_theorem_1_by_its_examples(seed, size):
    """a is the mean of eta_i/M_i and t that of tau_i/M_i, with the M_i of Lemma 2."""
    rows, bound = vectors(seed, size, count=9), 1.0
    g = rows.mean(0)
    m = (rows.norm(dim=1) / bound).clamp(min=1)
    eta = rows @ g / (g @ g)
    tau = rows - eta.unsqueeze(1) * g
    split = decompose((rows / m.unsqueeze(1)).mean(0), g)
    assert split.scale.item() == pytest.approx((eta / m).mean().item(), rel=1e-9, abs=1e-12)
    turned = (tau / m.unsqueeze(1)).mean(0).norm().item()
    assert split.direction.item() == pytest.approx(turned, rel=1e-9, abs=1e-12)


def test_what_is_only_scaled_does_not_turn_and_what_has_no_direction_is_not_a_number():
    g = torch.tensor([3.0, -4.0])
    split = decompose(-2 * g, g)
    assert [value.item() for value in split] == [-2, 15, 15, 0]
    assert [value.item() for value in decompose(g, g)] == [1, 0, 0, 0]
    zero, one = torch.zeros(2), torch.tensor([3.0, 4.0])
    split = decompose(one, zero)
    assert split.bias == 5
    assert all(math.isnan(v) for v in (split.scale, split.magnitude, split.direction))
    assert cosine(one, zero).isnan()
    assert cosine(zero, one).isnan()
    assert [v.item() for v in decompose(zero, one)] == [0, 5, 5, 0]
