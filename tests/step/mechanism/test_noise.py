"""Noise laws: the scale is multiplier times sensitivity, and what the ledger hears is that law."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from dpbench.privacy.accountants import pld, pld_of_reals, rdp
from dpbench.privacy.entries import GAUSSIAN_END, LOGISTIC_END
from dpbench.privacy.ledger import (
    CoordinateMechanism,
    Exact,
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
)
from dpbench.step.mechanism.draws import _refined, draws
from dpbench.step.mechanism.noise import (
    CHUNK,
    GRID,
    QUANTILES,
    Gaussian,
    NoNoise,
    PerCoordinate,
    _rounded,
)
from dpbench.step.mechanism.streams import CipherStream, uniforms
from dpbench.system.errors import UserError
from tests.problems import problem
from tests.steps import stream

SIZE = 20_000


def draw(sensitivity: float | torch.Tensor, multiplier: float, seed: int = 0) -> torch.Tensor:
    return Gaussian().add(torch.zeros(SIZE), sensitivity, multiplier, stream(seed))


@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2, 0.95, 1.05])
@pytest.mark.parametrize("sensitivity", [0.5, torch.tensor(3.0)], ids=["float", "tensor"])
@pytest.mark.parametrize("multiplier", [0.8, 2.0])
def test_the_scale_is_multiplier_times_sensitivity(variance_p, sensitivity, multiplier, wrong):
    noise, scale = draw(sensitivity, multiplier), float(sensitivity) * multiplier
    assert variance_p(noise, scale) > 1e-3
    assert variance_p(noise, scale * wrong) < 1e-6


def test_the_law_is_gaussian_with_mean_zero_and_coordinates_are_independent():
    noise = draw(0.5, 2.0).double()
    assert stats.kstest(noise.numpy(), "norm").pvalue > 1e-3
    assert abs(noise.mean()) < 4 / SIZE**0.5
    for lag in (1, 2, SIZE // 2):
        assert stats.pearsonr(noise[:-lag].numpy(), noise[lag:].numpy()).pvalue > 1e-3


def test_noise_is_added_to_the_sum_and_does_not_depend_on_it():
    total = torch.linspace(-5, 5, 50, dtype=torch.float64)
    noisy = Gaussian().add(total.clone(), 2.0, 3.0, stream())
    alone = Gaussian().add(torch.zeros_like(total), 2.0, 3.0, stream())
    assert torch.allclose(noisy, total + alone, atol=6 * GRID)
    assert noisy.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gaussian_noise_is_what_another_library_makes_of_the_same_bits(released, dtype):
    total = torch.linspace(-5, 5, 4096, dtype=dtype)
    noisy = Gaussian().add(total.clone(), torch.tensor(0.7), 1.9, stream(3))
    expected = released(total.numpy(), 0.7 * 1.9, stream(3))
    # A float32 bound of 0.7 is another number than 0.7.
    assert np.abs(noisy.numpy() - expected).max() <= 2 * GRID


@pytest.mark.slow
def test_drawing_in_pieces_gives_the_same_noise(released):
    size = 2 * CHUNK["cpu"] + 12_345
    pieces = Gaussian().add(torch.zeros(size, dtype=torch.float64), 2.0, 3.0, stream())
    np.testing.assert_allclose(pieces.numpy(), released(np.zeros(size), 6.0, stream()), atol=1e-13)


def test_the_number_of_threads_does_not_change_what_is_drawn():
    threads, size = torch.get_num_threads(), 5 * CHUNK["cpu"] + 123
    try:
        noisy = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            noisy.append(Gaussian().add(torch.linspace(-9, 9, size), 2.0, 3.0, stream()))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(noisy[0], noisy[1])
    assert torch.equal(noisy[0], noisy[2])


def test_each_call_is_a_new_draw_from_the_given_stream_only():
    again = stream()
    first, second = (Gaussian().add(torch.zeros(100), 1.0, 1.0, again) for _ in range(2))
    assert not torch.isclose(first, second).any()
    before = torch.get_rng_state()
    first = draw(1.0, 1.0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(123)
    assert torch.equal(draw(1.0, 1.0), first)
    torch.set_rng_state(before)


def test_the_ledger_has_the_noise_multiplier_and_without_noise_the_sum_is_unchanged():
    assert Gaussian().mechanism(0.8) == GaussianMechanism(0.8)
    assert Gaussian().private
    total = torch.arange(3.0)
    assert torch.equal(NoNoise().add(total, 1.0, 5.0, stream()), total)
    assert NoNoise().mechanism(5.0) == Exact()
    assert not NoNoise().private


@pytest.mark.parametrize("multiplier", [0, -1.0, float("nan")])
def test_the_ledger_has_no_gaussian_without_noise(multiplier):
    with pytest.raises(UserError, match="noise_multiplier"):
        Gaussian().mechanism(multiplier)


laws = pytest.mark.parametrize(
    ("noise", "law"),
    [(PerCoordinate(name), getattr(stats, name)) for name in QUANTILES],
    ids=QUANTILES,
)


def sample(noise, sensitivity, multiplier: float, **of) -> torch.Tensor:
    return noise.add(torch.zeros(SIZE, **of), sensitivity, multiplier, stream())


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


class Edges:
    """The bits from which the draws furthest out and closest to 0 are made."""

    device = torch.device("cpu")

    def bits(self, size: int) -> torch.Tensor:
        return torch.tensor([0, -1, 2**63 - 1, -(2**63)])[:size]

    def derived(self, purpose: str):
        return CipherStream(purpose.encode().ljust(32))


@pytest.mark.parametrize("noise", [Gaussian(), *map(PerCoordinate, QUANTILES)])
def test_draws_on_the_edge_are_finite_and_symmetric(noise):
    drawn = noise.add(torch.zeros(4, dtype=torch.float64), 1.0, 1.0, Edges())
    assert drawn.isfinite().all()
    assert drawn[0] == -drawn[1] > 9
    assert drawn[2:].abs().max() < 1e-15


@laws
def test_noise_per_coordinate_is_added_in_pieces_that_are_one_draw(noise, law):
    size = CHUNK["cpu"] + 100
    total = torch.linspace(-5, 5, size)
    one, other = stream(), stream()
    noisy = noise.add(total.clone(), 2.0, 3.0, one)
    alone = noise.add(torch.zeros(size), 2.0, 3.0, other)
    assert torch.allclose(noisy, total + alone, atol=1e-4)
    assert torch.equal(one.bits(3), other.bits(3))
    halves = alone.split(size // 2)
    assert stats.pearsonr(*(half[: size // 2].numpy() for half in halves[:2])).pvalue > 1e-3


@laws
def test_the_ledger_has_the_law_and_the_number_of_coordinates(noise, law):
    mechanism = noise.bind(problem(size=12)).mechanism(0.8)
    assert mechanism == CoordinateMechanism(noise.law, 0.8, 12)
    assert mechanism.shift == pytest.approx(1 / (0.8 * 12**0.5))
    assert noise.private
    with pytest.raises(UserError, match="call bind"):
        noise.mechanism(0.8)


def ours(total: torch.Tensor, scale: float, seed: int) -> torch.Tensor:
    return Gaussian().add(total.clone(), 1.0, scale, stream(seed))


def of_torch(total: torch.Tensor, scale: float, seed: int) -> torch.Tensor:
    return total + scale * torch.randn(total.shape, generator=torch.Generator().manual_seed(seed))


class Uniform24:
    """Bits whose shares are those that float32 uniforms of 24 bits can be."""

    device = torch.device("cpu")

    def bits(self, size: int) -> torch.Tensor:
        return stream().bits(size) // 2**40 * 2**40


def test_the_tail_extends_beyond_that_of_float32_uniforms():
    """An output beyond the last value that noise can take proves that the example is there."""
    ends = {
        name: float(draws(bits, 10**6, torch.special.ndtri).abs().max())
        for name, bits in (("24 bits", Uniform24()), ("all", Edges()))
    }
    assert ends["24 bits"] < 5.6
    assert ends["all"] > 9.1


def test_a_draw_from_the_tail_is_any_number_between_the_64_bits_around_it():
    """So that no output within 12 deviations proves that an example is there."""
    lasts = []
    for k in range(200):
        edges = Edges()
        edges.derived = lambda purpose, k=k: CipherStream(f"{k} {purpose}".encode().ljust(32))
        lasts.append(draws(edges, 2, torch.special.ndtri)[1].abs().item())
    shares = special.ndtr(-np.array(lasts)) * 2**64
    assert stats.kstest(shares, "uniform").pvalue > 1e-3


def test_a_draw_that_is_not_from_the_tail_is_that_of_its_64_bits():
    plain = torch.special.ndtri((stream().bits(1000).double() + 0.5).abs() * 2.0**-64)
    assert torch.equal(draws(stream(), 1000, torch.special.ndtri).abs(), plain.abs())


def on_the_lattice(noisy: torch.Tensor) -> torch.Tensor:
    """Whether pairs are what Box and Muller's transform makes of 24-bit uniforms, as bool.

    torch fills in pieces of 16: z_j and z_{j+8} have one radius, and exp(-radius^2/2) is a
    multiple of 2^-24. Of pairs far enough out for two float32 to tell; others are left out. By
    chance one in five is.
    """
    places = torch.exp(-noisy.double().view(-1, 2, 8).square().sum(1) / 2) * 2**24
    off = (places - places.round()).abs()
    return (off < 0.1)[places < 2**16]


def test_the_values_are_on_no_lattice():
    """Where noise alone is on one, an output that is not on it has the example in it."""
    bad, good = (on_the_lattice(r(torch.zeros(2**20), 1.0, 0)) for r in (of_torch, ours))
    assert bad.double().mean() > 0.9
    assert stats.binomtest(int(good.sum()), len(good), 0.2).pvalue > 1e-3


@pytest.mark.parametrize("total", [0.0, 1.0, 1 / 3, -7.3e-5, 1e3])
def test_the_last_digits_do_not_depend_on_the_sum(total):
    """All outputs are multiples of one grid, and each multiple is as likely as its neighbour."""
    noisy = Gaussian().add(torch.full((2**16,), total, dtype=torch.float64), 0.9, 1.3, stream(1))
    places = noisy / (2.0**0 * GRID)
    assert torch.equal(places, places.round())
    lowest = torch.stack([places.long() >> k & 1 for k in range(4)]).double().mean(1)
    assert ((lowest - 0.5).abs() < 5 * 0.5 / 2**8).all()


@pytest.mark.parametrize("total", [1 / 3, -7.3e-5])
def test_a_gpu_rounds_as_a_processor(total):
    """Its operations, in the memory of a processor: to a grid that the scale alone decides."""
    noisy = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grid = 2.0**0 * GRID
    expected = torch.from_numpy(np.rint((noisy + total).numpy() / grid) * grid)
    assert torch.equal(_rounded(noisy + total, 1.3), expected)
    assert torch.equal(_rounded(-noisy - total, 1.3), -expected)


def guessed(release) -> int:
    """How often, of 200 times, the lattice tells which of two sums was released.

    At noise multiplier 50, of the 7,850 parameters of logistic regression on MNIST, without and
    with one example.
    """
    sums = torch.zeros(2, 7856)
    sums[1] = torch.linspace(0.001, 0.02, 7856)
    right = 0
    for seed in range(200):
        released = release(sums[seed % 2], 50.0, seed)
        scores = [int(on_the_lattice((released - known) / 50).sum()) for known in sums]
        right += (scores[1] > scores[0]) == (seed % 2 == 1)
    return right


def test_the_lattice_of_float32_noise_reveals_an_example_and_ours_does_not():
    assert guessed(of_torch) > 190
    assert stats.binomtest(guessed(ours), 200, 0.5).pvalue > 1e-3


@pytest.mark.parametrize(
    ("law", "density", "end"),
    [
        ("gaussian", stats.norm.pdf, GAUSSIAN_END),
        ("logistic", stats.logistic.pdf, LOGISTIC_END),
        ("laplace", stats.laplace.pdf, LOGISTIC_END),
    ],
)
def test_up_to_the_end_of_accountants_each_point_collects_thousands_of_draws(law, density, end):
    """The grid is at least GRID/2 of a scale, and draws are apart by 2^-116 of probability."""
    assert density(end) * GRID / 2 / 2.0**-116 > 1000


def test_on_a_gpu_draws_get_their_further_bits_all_at_once():
    tails = torch.tensor([0.5, 7.5, 2.0**31 + 0.5, 2.0**32 + 0.5, 2.0**60 + 0.5]).double()
    refined = _refined(tails.clone(), stream().bits(len(tails)))
    further = uniforms(stream(), len(tails))
    assert torch.equal(refined[:3], tails[:3].floor() + further[:3])
    assert torch.equal(refined[3:], tails[3:])


def test_an_output_beyond_all_noise_shows_an_example_and_no_epsilon_is_claimed():
    """At multiplier 0.05 one example moves the sum by 20 deviations, and noise ends at 12.5."""
    scale = 0.05
    farthest = -scale * float(special.ndtri(2.0**-117))
    with_it = Gaussian().add(torch.ones(10_000, dtype=torch.float64), 1.0, scale, stream(3))
    assert (with_it > farthest).double().mean() > 0.99
    release = Release("sum", Gaussian().mechanism(scale))
    book = Ledger().after(Step(Poisson(0.5), (release,)), 2)
    assert (rdp(book, 1e-6), pld(book, 1e-6)) == (math.inf, math.inf)


@pytest.mark.parametrize("multiplier", [0.2, 0.25])
def test_unreachable_outputs_are_deducted_from_delta(multiplier):
    """One step of a Gaussian cut off at the end: its delta at the epsilon, in closed form."""
    release = Release("sum", Gaussian().mechanism(multiplier))
    book, delta, shift = Ledger().after(Step(Poisson(1.0), (release,))), 1e-6, 1 / multiplier
    for spend in (rdp, pld):
        epsilon = spend(book, delta)
        # Outputs above `cut` have a loss above epsilon, and those above the end an infinite one.
        cut = epsilon / shift + shift / 2
        over = special.ndtr(shift - cut) - special.ndtr(shift - GAUSSIAN_END)
        hidden = over - math.exp(epsilon) * (special.ndtr(-cut) - special.ndtr(-GAUSSIAN_END))
        assert hidden + special.ndtr(shift - GAUSSIAN_END) <= delta * (1 + 1e-6)
    over_reals = special.ndtr(shift - GAUSSIAN_END)
    assert pld(book, delta) >= pld_of_reals(book, delta - over_reals) > pld_of_reals(book, delta)
