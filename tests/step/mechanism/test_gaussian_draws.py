"""The fast Gaussian draws have the bits of the slow ones, wherever the sum lies."""

import numpy as np
import pytest
import torch

from dpbench.step.mechanism import draws as module
from dpbench.step.mechanism import noise
from dpbench.step.mechanism.draws import CLOSE, FAR, FEWEST, add_gaussian, draws
from dpbench.step.mechanism.noise import _grid, add_rounded
from dpbench.step.mechanism.streams import CipherStream

SIZE = 2**15


def stream(name="noise"):
    return CipherStream(name.encode().ljust(32))


def slowly(total, scale, name="noise"):
    """The sum rounded as it always was: draws by ndtri, added in float64."""
    noisy = draws(stream(name), len(total), torch.special.ndtri).mul_(scale).add_(total)
    grid = _grid(scale)
    return torch.empty_like(total).copy_(noisy.div_(grid).round_().mul_(grid))


def quickly(total, scale, name="noise"):
    total = total.clone()
    add_gaussian(total, scale, _grid(scale), stream(name))
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 0.7, 1.0, 1.999, 3e5])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e4, 1e12])
def test_all_bits_are_those_of_ndtri(dtype, scale, size):
    for name in ("a", "b", "c"):
        generator = torch.Generator().manual_seed(1)
        total = scale * size * torch.randn(SIZE, dtype=dtype, generator=generator)
        assert torch.equal(quickly(total, scale, name), slowly(total, scale, name))


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.999])
def test_sums_at_the_boundary_of_two_points_are_rounded_to_the_same_one(scale):
    """For each draw a total that puts the noisy sum on half a point of the grid, or beside it."""
    grid = _grid(scale)
    drawn = draws(stream(), SIZE, torch.special.ndtri).mul_(scale)
    aside = torch.linspace(-1e-9, 1e-9, SIZE, dtype=torch.float64)
    total = (torch.arange(SIZE, dtype=torch.float64) + 0.5 + aside) * grid - drawn
    assert torch.equal(quickly(total, scale), slowly(total, scale))


def test_without_a_second_look_such_sums_would_be_rounded_otherwise(monkeypatch):
    """So the test before can fail."""
    monkeypatch.setattr(module, "CLOSE", 0.0)
    monkeypatch.setattr(module, "_largest", lambda *_: 0.0)
    drawn = draws(stream(), SIZE, torch.special.ndtri)
    total = (torch.arange(SIZE, dtype=torch.float64) + 0.5) * _grid(1.0) - drawn
    assert not torch.equal(quickly(total, 1.0), slowly(total, 1.0))


def test_both_ways_of_drawing_lie_closer_than_is_assumed():
    """On two million draws, and where rounding errors are magnified most."""
    signed = stream().bits(2**21).double().add_(0.5)
    edges = FAR - np.linspace(0, 1e-3, 2**16)
    signed = torch.cat([signed, torch.from_numpy((1 - edges) * 2.0**63)])
    erf = 1 - signed.abs() * 2.0**-63
    near = erf <= FAR
    by_erfinv = erf[near].erfinv() * 2**0.5
    by_ndtri = -torch.special.ndtri(signed[near].abs() * 2.0**-64)
    assert (by_erfinv - by_ndtri).abs().max() < 0.75 * CLOSE


def test_a_tail_takes_further_bits():
    """The words next to 0 are the farthest draws; each has bits of its own."""

    class Edges(CipherStream):
        def bits(self, size):
            return torch.tensor([0, -1, 5] * (size // 3)) if size >= FEWEST else super().bits(size)

    def at_edges(fill):
        total = torch.zeros(3 * FEWEST, dtype=torch.float64)
        return fill(total, Edges(b"edges".ljust(32)))

    def fast(total, edges):
        add_gaussian(total, 1.0, _grid(1.0), edges)
        return total

    def slow(total, edges):
        noisy = draws(edges, len(total), torch.special.ndtri)
        return noisy.div_(_grid(1.0)).round_().mul_(_grid(1.0))

    found = at_edges(fast)
    assert found.abs().max() > 9
    assert torch.equal(found, at_edges(slow))


def test_sums_that_are_not_finite_stay_so():
    total = torch.zeros(FEWEST)
    total[3], total[5] = float("inf"), float("nan")
    found = quickly(total, 1.0)
    assert torch.equal(found.isfinite(), total.isfinite())
    assert torch.equal(found[6:], slowly(total, 1.0)[6:])


@pytest.mark.parametrize("fast", [True, False])
def test_sums_have_the_same_bits_whichever_way_this_cpu_takes(monkeypatch, fast):
    monkeypatch.setattr(noise, "erfinv_is_faster", lambda: fast)
    for size in (FEWEST - 1, FEWEST, 3 * SIZE + 5):
        total = torch.linspace(-2, 2, size)
        found = add_rounded(total.clone(), 0.9, torch.special.ndtri, stream())
        assert torch.equal(found, slowly(total, 0.9))
