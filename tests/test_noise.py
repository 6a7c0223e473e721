"""Noise laws: the scale is multiplier times sensitivity, and what the ledger hears is that law."""

import pytest
import torch
from scipy import stats

from dpbench.errors import UserError
from dpbench.ledger import CoordinateMechanism, Exact, GaussianMechanism
from dpbench.noise import PIECE, QUANTILES, Gaussian, NoNoise, PerCoordinate

SIZE = 20_000


def draw(sensitivity: float | torch.Tensor, multiplier: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return Gaussian().add(torch.zeros(SIZE), sensitivity, multiplier, generator)


@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2, 0.95, 1.05])
@pytest.mark.parametrize("sensitivity", [0.5, torch.tensor(3.0)], ids=["float", "tensor"])
@pytest.mark.parametrize("multiplier", [0.8, 2.0])
def test_the_scale_is_multiplier_times_sensitivity(variance_p, sensitivity, multiplier, wrong):
    noise, scale = draw(sensitivity, multiplier), float(sensitivity) * multiplier
    assert variance_p(noise, scale) > 1e-3
    assert variance_p(noise, scale * wrong) < 1e-6


def test_the_law_is_gaussian_with_mean_zero():
    noise = draw(0.5, 2.0).double()
    assert stats.kstest(noise.numpy(), "norm").pvalue > 1e-3
    assert abs(noise.mean()) < 4 / SIZE**0.5


def test_coordinates_are_independent():
    noise = draw(0.5, 2.0).double()
    for lag in (1, 2, SIZE // 2):
        assert stats.pearsonr(noise[:-lag].numpy(), noise[lag:].numpy()).pvalue > 1e-3


def test_noise_is_added_to_the_sum_and_does_not_depend_on_it():
    total = torch.linspace(-5, 5, 50, dtype=torch.float64)
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    noisy = Gaussian().add(total.clone(), 2.0, 3.0, generators[0])
    alone = Gaussian().add(torch.zeros_like(total), 2.0, 3.0, generators[1])
    assert torch.allclose(noisy, total + alone, rtol=1e-14)
    assert noisy.dtype == torch.float64


def test_what_is_drawn_in_pieces_is_one_draw():
    size = 2 * PIECE + 12_345
    noise, whole = (torch.Generator().manual_seed(0) for _ in range(2))
    pieces = Gaussian().add(torch.zeros(size), 2.0, 3.0, noise)
    assert torch.equal(pieces, 6 * torch.randn(size, generator=whole))


def test_each_call_is_a_new_draw():
    generator = torch.Generator().manual_seed(0)
    first, second = (Gaussian().add(torch.zeros(100), 1.0, 1.0, generator) for _ in range(2))
    assert not torch.isclose(first, second).any()


def test_only_the_given_generator_is_used():
    before = torch.get_rng_state()
    first = draw(1.0, 1.0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(123)
    assert torch.equal(draw(1.0, 1.0), first)
    torch.set_rng_state(before)


def test_what_the_ledger_hears_is_the_multiplier():
    assert Gaussian().mechanism(0.8) == GaussianMechanism(0.8)
    assert Gaussian().private


@pytest.mark.parametrize("multiplier", [0, -1.0, float("nan")])
def test_the_ledger_hears_of_no_gaussian_without_noise(multiplier):
    with pytest.raises(UserError, match="noise_multiplier"):
        Gaussian().mechanism(multiplier)


def test_no_noise_changes_nothing_and_says_so():
    total = torch.arange(3.0)
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(NoNoise().add(total, 1.0, 5.0, generator), total)
    assert NoNoise().mechanism(5.0) == Exact()
    assert not NoNoise().private


# Noise on each coordinate.

laws = pytest.mark.parametrize(
    ("noise", "law"),
    [(PerCoordinate(name), getattr(stats, name)) for name in QUANTILES],
    ids=QUANTILES,
)


def sample(noise, sensitivity, multiplier: float, **of) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return noise.add(torch.zeros(SIZE, **of), sensitivity, multiplier, generator)


def p_value(sample: torch.Tensor, law, scale: float) -> float:
    return stats.kstest(sample.double().numpy() / scale, law.cdf).pvalue


@laws
@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2])
@pytest.mark.parametrize("sensitivity", [0.5, torch.tensor(3.0)], ids=["float", "tensor"])
def test_the_law_is_that_of_its_name_and_scale(noise, law, sensitivity, wrong):
    drawn, scale = sample(noise, sensitivity, 1.7), 1.7 * float(sensitivity)
    assert p_value(drawn, law, scale) > 1e-3
    assert p_value(drawn, law, scale * wrong) < 1e-6
    assert p_value(drawn, stats.norm, scale * law.std()) < 1e-6


@laws
def test_numbers_on_the_edge_of_the_generator_are_finite(noise, law, monkeypatch):
    def edges(shape, **of):
        return torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)

    monkeypatch.setattr(torch, "rand", edges)
    drawn = noise.add(torch.zeros(2), 1.0, 1.0, torch.Generator())
    assert drawn.isfinite().all()
    assert drawn.abs().min() > 30


@laws
def test_noise_per_coordinate_is_added_in_pieces_that_are_one_draw(noise, law):
    size = PIECE + 100
    total = torch.linspace(-5, 5, size)
    one, other = (torch.Generator().manual_seed(0) for _ in range(2))
    noisy = noise.add(total.clone(), 2.0, 3.0, one)
    alone = noise.add(torch.zeros(size), 2.0, 3.0, other)
    assert torch.allclose(noisy, total + alone, atol=1e-4)
    assert torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=other))
    halves = alone.split(size // 2)
    assert stats.pearsonr(*(half[: size // 2].numpy() for half in halves[:2])).pvalue > 1e-3


@laws
def test_the_ledger_hears_of_the_law_and_of_every_coordinate(noise, law):
    mechanism = noise.for_size(12).mechanism(0.8)
    assert mechanism == CoordinateMechanism(noise.law, 0.8, 12)
    assert mechanism.shift == pytest.approx(1 / (0.8 * 12**0.5))
    assert noise.private
    with pytest.raises(UserError, match="for_size"):
        noise.mechanism(0.8)
