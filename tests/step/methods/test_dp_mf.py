"""Banded matrix factorisation: its matrices by hand, its sensitivity, its noise, its account."""

import dataclasses
import math
from itertools import islice

import dp_accounting
import pytest
import torch
from dp_accounting.pld import PLDAccountant

from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import (
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
    from_plain,
    to_plain,
)
from dpbench.step.mechanism.sampling import PoissonSampler
from dpbench.step.mechanism.state import restore_state, state_of
from dpbench.step.methods.dp_mf import BandedGaussian, banded_square_root, dp_mf
from dpbench.system.errors import UserError

STEPS, SIZE = 13, 4000


def made(bands=4, bound=0.5, **changes):
    return dp_mf(bound, bands, **{"clip": "abadi", "style": "flat", **changes})


def matrix(bands, steps=STEPS):
    """C, entry by entry, in the slow obvious way."""
    c = banded_square_root(bands)
    rows = [[c[i - j] if 0 <= i - j < bands else 0.0 for j in range(steps)] for i in range(steps)]
    return torch.tensor(rows, dtype=torch.float64)


def noise_of(bands, stream, steps=STEPS, size=SIZE):
    """The noise of each step of an all-zero sum, with multiplier * sensitivity 1 [steps, size]."""
    noise, rows = BandedGaussian(coefficients=banded_square_root(bands)), []
    for _ in range(steps):
        total = torch.zeros(size, dtype=torch.float64)
        noise = noise.advance(total, stream)
        rows.append(noise.add(total, 1.0, 1.0, stream))
    return torch.stack(rows)


def ledger_of(sigma, rate, bands, steps, cycle=None):
    release = Release("gradient sum", GaussianMechanism(sigma, bands=bands))
    return Ledger().after(Step(Poisson(rate, "example", cycle or bands), (release,)), steps)


def test_the_coefficients_are_those_of_the_square_root_of_the_prefix_sum_and_of_jax_privacy():
    # Fichtenberger et al. 2023: binom(2k, k)/4^k, and with all of them C C is the prefix sum.
    whole = banded_square_root(STEPS)
    by_hand = [math.comb(2 * k, k) / 4**k for k in range(STEPS)]
    assert [c / whole[0] for c in whole] == pytest.approx(by_hand)
    c = matrix(STEPS) / whole[0]
    assert torch.allclose(c @ c, torch.ones(STEPS, STEPS, dtype=torch.float64).tril())
    # What jax_privacy 2.0.0 prints: toeplitz.optimal_max_error_strategy_coefs(4), over its norm.
    theirs = [0.8197048313256959, 0.40985241566284797, 0.30738931174713596, 0.25615775978927996]
    assert banded_square_root(4) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("bands", [1, 2, 4, 13])
def test_the_turns_of_an_example_are_disjoint_blocks_of_sensitivity_one(bands):
    c = matrix(bands)
    for place in range(bands):
        columns = c[:, place::bands]
        assert ((columns != 0).sum(1) <= 1).all()  # no release reveals two of its turns
        assert (columns.norm(dim=0) <= 1 + 1e-12).all()
        assert columns.norm(dim=0)[0] == pytest.approx(1.0) or place + bands > STEPS


@pytest.mark.parametrize("bands", [1, 2, 4])
def test_one_example_moves_the_encoded_sums_of_a_turn_by_at_most_the_bound(bands):
    """Two turns are apart by at least the cycle; each moves C x, in units of R, by at most 1."""
    draw = torch.Generator().manual_seed(0)
    for place in range(bands):
        x = torch.zeros(STEPS, 6, dtype=torch.float64)
        x[place::bands] = torch.randn(len(x[place::bands]), 6, generator=draw, dtype=torch.float64)
        x /= x.norm(dim=1, keepdim=True).clamp(min=1)
        encoded = matrix(bands) @ x
        for start in range(place, STEPS, bands):
            assert encoded[start : start + bands].norm() <= 1 + 1e-12


@pytest.mark.parametrize("bands", [1, 2, 4, 20])
def test_the_noise_is_the_inverse_of_c_times_independent_draws(stream_of, variance_p, bands):
    rows = noise_of(bands, stream_of(3))
    decoded = matrix(bands) @ rows
    assert all(variance_p(row, 1.0) > 1e-4 for row in decoded)
    assert all(variance_p(row, 1.5) < 1e-6 for row in decoded)
    correlations = decoded @ decoded.T / SIZE
    assert correlations[~torch.eye(STEPS, dtype=torch.bool)].abs().max() < 5 / SIZE**0.5
    bits = [stream_of(3)]
    z = torch.stack([noise_of(1, bits[0], 1)[0] for _ in range(STEPS)])
    solved = torch.linalg.solve_triangular(matrix(bands), z, upper=False)
    assert torch.allclose(rows, solved, atol=1e-5)  # up to the grid


def test_sums_of_noise_grow_less_than_those_of_independent_noise(stream_of):
    ours, usual = (noise_of(bands, stream_of(1)).sum(0).std() for bands in (4, 1))
    inverse = torch.linalg.inv(matrix(4))
    assert float(ours) == pytest.approx(float(inverse.sum(0).norm()), rel=0.05)
    assert ours < 0.8 * usual


def test_noise_comes_back_from_its_state(stream_of):
    start, stream = BandedGaussian(coefficients=banded_square_root(4)), stream_of(0)
    noise, zeros = start, torch.zeros(5, dtype=torch.float64)
    assert state_of(start) == {}
    for _ in range(6):
        noise = noise.advance(zeros, stream)
    assert len(noise.correlated) == 3
    back = restore_state(start, state_of(noise), torch.device("cpu"))
    at = stream.state_dict()
    one = noise.advance(zeros, stream)
    stream.load_state_dict(at)
    assert torch.equal(back.advance(zeros, stream).correlated, one.correlated)


def test_a_bound_that_changes_scales_the_noise_of_all_steps_alike(stream_of):
    """So that x_t/R_t + w_t is the same mechanism for any R_t."""
    noise, stream, one = (
        BandedGaussian(coefficients=banded_square_root(3)),
        stream_of(0),
        torch.zeros(50),
    )
    for scale in (1.0, 2.0, 0.5):
        noise = noise.advance(one.double(), stream)
        added = noise.add(one.double().clone(), scale, 1.5, stream)
        assert torch.allclose(added, noise.correlated[0] * scale * 1.5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("bands", "steps"), [(1, 300), (4, 300), (7, 300), (7, 5)])
def test_the_cost_is_one_sampled_gaussian_per_turn(bands, steps):
    epsilon, rate, sigma = pld(ledger_of(1.3, 0.05, bands, steps), 1e-5), 0.05, 1.3
    theirs = PLDAccountant()
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    theirs.compose(event, math.ceil(steps / bands))
    assert epsilon == pytest.approx(theirs.get_epsilon(1e-5), abs=1e-6)


# What `DpsgdTrainingAccountant(PldAccountantConfig())` of jax_privacy 2.0.0 says of batches of b of
# n examples with cycle_length=bands.
@pytest.mark.parametrize(
    ("sigma", "b", "n", "bands", "steps", "theirs"),
    [
        (1.2, 256, 29000, 4, 456, 1.7989999696791463),
        (2.0, 64, 1500, 8, 920, 9.983543595207317),
        (3.0, 100, 1000, 10, 200, 6.999226753712008),
    ],
)
def test_epsilon_agrees_with_jax_privacy(sigma, b, n, bands, steps, theirs):
    ours = pld(ledger_of(sigma, b / (n // bands), bands, steps), 1e-5)
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_noise_that_is_correlated_beyond_the_cycle_has_no_account():
    for accountant in (pld, rdp):
        with pytest.raises(Unaccountable, match="correlated over 4 steps"):
            accountant(ledger_of(1.0, 0.1, 4, 100, cycle=3), 1e-5)
        assert accountant(ledger_of(1.0, 0.1, 4, 100, cycle=5), 1e-5) > 0


def test_too_many_bands_and_coefficients_of_a_norm_above_one_are_refused():
    assert BandedGaussian(coefficients=(0.6, 0.8)).bands == 2
    with pytest.raises(UserError, match=r"must have a norm of 1 at most, and have 1.41421: divide"):
        BandedGaussian(coefficients=(1.0, 1.0))
    with pytest.raises(
        UserError, match="30 disjoint batches of 20 need more than the 400 training examples"
    ):
        PoissonSampler(400, 20, "example", 30)


def inclusion(sampler, size, steps, stream):
    rows = torch.zeros(steps, size, dtype=torch.bool)
    for row, indices in zip(rows, islice(sampler.batches(size, stream), steps), strict=True):
        row[indices] = True
    return rows


@pytest.mark.parametrize("cycle", [2, 5])
def test_the_turns_of_a_unit_are_one_cycle_apart_in_all_epochs(stream_of, cycle):
    draw, stream, size = PoissonSampler(400, 20, "example", cycle), stream_of(7), 400
    steps = draw.steps_per_epoch
    assert steps % cycle == 0
    assert draw.law == Poisson(1 / math.ceil(400 / (20 * cycle)), "example", cycle)
    # Each epoch asks the draw anew, as a run does.
    rows = torch.cat([inclusion(draw, size, steps, stream) for _ in range(40)])
    at = rows.nonzero()
    places = [set((at[at[:, 1] == unit, 0] % cycle).tolist()) for unit in range(size)]
    assert all(len(place) <= 1 for place in places)
    share = rows.view(-1, cycle, size).sum(0).max(0).values.double().mean() / (len(rows) / cycle)
    assert float(share) == pytest.approx(draw.law.rate, rel=0.05)
    assert float(rows.sum(1).double().mean()) == pytest.approx(draw.expected_batch_size, rel=0.05)


def test_places_are_uniform_and_do_not_depend_on_other_units(stream_of):
    sampler = PoissonSampler(5000, 100, "example", 5)
    groups, fewer = (sampler._members(size, stream_of(3)) for size in (5000, 4999))
    assert all(abs(len(group) - 1000) < 6 * 29 for group in groups)
    assert all(torch.equal(a[a < 4999], b) for a, b in zip(groups, fewer, strict=True))
    other = sampler._members(5000, stream_of(4))
    assert not all(torch.equal(a, b) for a, b in zip(groups, other, strict=True))


def test_a_step_declares_its_bands_to_a_ledger_that_comes_back_from_a_record():
    (release,) = made(4).releases(1.1)
    assert release.mechanism == GaussianMechanism(1.1, bands=4)
    assert dataclasses.replace(made(4)).noise.bands == 4
    book = ledger_of(1.0, 0.1, 4, 100)
    assert from_plain(to_plain(book)) == book
    (usual,) = to_plain(ledger_of(1.0, 0.1, 1, 100))
    assert "cycle" not in usual["sampling"]
    assert "bands" not in usual["releases"][0]["mechanism"]
