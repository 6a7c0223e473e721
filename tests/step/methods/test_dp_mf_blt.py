"""Buffered linear Toeplitz noise: C by hand, its sensitivity by brute force, its noise, account and
parameters, some of them beside jax_privacy 2.0.0 (matrix_factorization.buffered_toeplitz)."""

import dataclasses
import itertools
import json
import math

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import (
    GaussianMechanism,
    Ledger,
    Poisson,
    Release,
    Step,
    ToeplitzGaussian,
    from_plain,
    to_plain,
)
from dpbench.privacy.toeplitz import encoded, sensitivity
from dpbench.step.mechanism.sampling import PoissonSampler, make_sampler
from dpbench.step.mechanism.state import restore_state, state_of
from dpbench.step.methods.dp_mf_blt import (
    BufferedGaussian,
    Buffers,
    buffered_square_root,
    dp_mf_blt,
    error,
    optimal,
)
from dpbench.system.errors import UserError
from tests.problems import problem

DECAYS, WEIGHTS = (0.9861, 0.7421, 0.2103), (0.1512, 0.2034, 0.1277)
STEPS, SIZE = 13, 4000


def matrix(decays, weights, steps):
    """C, entry by entry, in the slow obvious way."""
    c = [1.0] + [
        sum(w * t ** (i - 1) for t, w in zip(decays, weights, strict=True)) for i in range(1, steps)
    ]
    return np.array([[c[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])


def ledger_of(sigma, steps, cycle, rate=1.0, decays=DECAYS, weights=WEIGHTS):
    release = Release("gradient sum", ToeplitzGaussian(sigma, decays, weights))
    return Ledger().after(Step(Poisson(rate, "example", cycle), (release,)), steps)


def noise_of(stream, steps=STEPS, size=SIZE):
    """The noise of each step of an all-zero sum, with multiplier * sensitivity 1 [steps, size]."""
    noise, rows = BufferedGaussian(decays=DECAYS, weights=WEIGHTS), []
    for _ in range(steps):
        total = torch.zeros(size, dtype=torch.float64)
        noise = noise.advance(total, stream)
        rows.append(noise.add(total, 1.0, 1.0, stream))
    return torch.stack(rows)


def test_rows_are_encoded_by_the_matrix_with_the_coefficients_of_jax_privacy():
    rows = np.random.default_rng(0).normal(size=STEPS)
    assert encoded(DECAYS, WEIGHTS, rows) == pytest.approx(matrix(DECAYS, WEIGHTS, STEPS) @ rows)
    # BufferedToeplitz.build(DECAYS, WEIGHTS).toeplitz_coefs(8) of jax_privacy.
    theirs = [
        1.0,
        0.4823,
        0.32689677,
        0.264688429239,
        0.2292961597498125,
        0.20490471377512245,
        0.1868108917716639,
        0.17300347567095986,
    ]
    assert encoded(DECAYS, WEIGHTS, np.eye(1, 8)[0]) == pytest.approx(theirs, abs=1e-12)


# The root of toeplitz.minsep_sensitivity_squared of so many coefficients, in jax_privacy.
@pytest.mark.parametrize(
    ("steps", "cycle", "theirs"),
    [
        (8, 8, 1.2525677368076646),
        (100, 30, 3.5270008047468644),
        (1890, 189, 4.9286016941603785),
        (37, 5, 6.124613336294429),
        (2000, 7, 81.2353189362804),
    ],
)
def test_the_sensitivity_is_that_of_jax_privacy(steps, cycle, theirs):
    assert sensitivity(DECAYS, WEIGHTS, steps, cycle) == pytest.approx(theirs, rel=1e-9)


decays_and_weights = st.lists(
    st.tuples(st.floats(0, 0.999), st.floats(0, 0.33)), min_size=1, max_size=3
)


def patterns(steps, apart):
    """All sets of steps that are at least so many apart."""
    for number in range(1, steps + 1):
        for steps_of in itertools.combinations(range(steps), number):
            if all(b - a >= apart for a, b in itertools.pairwise(steps_of)):
                yield list(steps_of)


@settings(max_examples=25, deadline=None)
@given(decays_and_weights, st.integers(1, 9), st.integers(1, 4))
def test_the_sensitivity_is_the_largest_over_all_participations(pairs, steps, apart):
    decays, weights = zip(*pairs, strict=True)
    c = matrix(decays, weights, steps)
    by_force = max(np.linalg.norm(c[:, turns].sum(1)) for turns in patterns(steps, apart))
    assert sensitivity(decays, weights, steps, apart) == pytest.approx(by_force, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_an_example_moves_the_encoded_sums_by_at_most_the_sensitivity(seed, place):
    """For gradients of any directions and norms up to 1, at any of its turns or not."""
    rng, cycle = np.random.default_rng(seed), 4
    x = np.zeros((STEPS, 5))
    x[place::cycle] = rng.normal(size=x[place::cycle].shape)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    x *= rng.random((STEPS, 1)) < 0.8
    moved = np.linalg.norm(matrix(DECAYS, WEIGHTS, STEPS) @ x)
    assert moved <= sensitivity(DECAYS, WEIGHTS, STEPS, cycle) * (1 + 1e-12)


def test_the_noise_is_the_inverse_of_c_times_independent_draws(stream_of, variance_p):
    rows, c = noise_of(stream_of(3)), torch.tensor(matrix(DECAYS, WEIGHTS, STEPS))
    decoded = c @ rows
    assert all(variance_p(row, 1.0) > 1e-4 for row in decoded)
    assert all(variance_p(row, 1.5) < 1e-6 for row in decoded)
    correlations = decoded @ decoded.T / SIZE
    assert correlations[~torch.eye(STEPS, dtype=torch.bool)].abs().max() < 5 / SIZE**0.5


def test_the_noise_of_unit_draws_is_the_inverse_of_c(stream_of, monkeypatch):
    """Exactly, by linearity: coordinate s has the draw 1 in step s, and 0 in all others."""
    units = iter(torch.eye(STEPS, dtype=torch.float64))
    monkeypatch.setattr("dpbench.methods.dp_mf_blt.draws", lambda *_: next(units).clone())
    rows = noise_of(stream_of(0), size=STEPS).numpy()
    c = matrix(DECAYS, WEIGHTS, STEPS)
    assert rows == pytest.approx(np.linalg.inv(c), abs=2e-6)  # up to the grid
    assert rows @ rows.T == pytest.approx(np.linalg.inv(c.T @ c), abs=1e-5)


def test_noise_comes_back_from_its_state(stream_of):
    start, stream = BufferedGaussian(decays=DECAYS, weights=WEIGHTS), stream_of(0)
    noise, zeros = start, torch.zeros(5, dtype=torch.float64)
    assert state_of(start) == {}
    for _ in range(6):
        noise = noise.advance(zeros, stream)
    assert noise.correlated.shape == (1 + len(DECAYS), 5)
    back = restore_state(start, state_of(noise), torch.device("cpu"))
    at = stream.state_dict()
    one = noise.advance(zeros, stream)
    stream.load_state_dict(at)
    assert torch.equal(back.advance(zeros, stream).correlated, one.correlated)


@pytest.mark.parametrize("number", [1, 2, 4])
def test_the_error_is_that_of_the_matrices(number):
    buffers, steps, cycle = buffered_square_root(number, 30), 30, 7
    c = matrix(*buffers, steps)
    sums = np.tril(np.ones((steps, steps))) @ np.linalg.inv(c)
    by_hand = (sums**2).sum() / steps * sensitivity(*buffers, steps, cycle) ** 2
    assert error(buffers, steps, cycle) == pytest.approx(by_hand)


def test_many_buffers_are_the_square_root_of_the_prefix_sum():
    c = encoded(*buffered_square_root(40, 10**9), np.eye(1, 60)[0])
    by_hand = [math.comb(2 * k, k) / 4**k for k in range(60)]
    assert c == pytest.approx(by_hand, rel=0.1)


# The root mean squared error, sensitivity included, of buffered_toeplitz.optimize(n=steps,
# min_sep=cycle, max_participations=None, error="mean", min_buffers=number, max_buffers=number).
@pytest.mark.parametrize(
    ("steps", "cycle", "number", "theirs"),
    [
        (100, 100, 2, 2.320782962913037),
        (100, 100, 3, 2.3200352353992804),
        (300, 30, 2, 11.01005480535286),
        (300, 30, 4, 10.98657567193128),
        (1000, 50, 2, 20.389195776457345),
        (1000, 50, 3, 20.389195787581748),
    ],
)
def test_the_error_is_at_most_that_of_jax_privacy(steps, cycle, number, theirs):
    assert error(optimal(number, steps, cycle), steps, cycle) ** 0.5 < 1.0005 * theirs


def test_parameters_have_four_digits_and_columns_that_do_not_increase():
    for steps, cycle in ((1, 1), (2, 2), (40, 1), (500, 100)):
        buffers = optimal(3, steps, cycle)
        ToeplitzGaussian(1.0, *buffers)
        assert all(float(f"{w:.4g}") == w for w in buffers.weights)
        c = encoded(*buffers, np.eye(1, 50)[0])
        assert (c >= 0).all()
        assert (np.diff(c) <= 1e-12).all()
    independent = 500**0.5 * ((500 + 1) / 2 / 500 * 5) ** 0.5
    assert error(buffers, 500, 100) ** 0.5 < independent / 4


# What PLD of `SingleReleaseTrainingAccountant` of jax_privacy says of sigma over the sensitivity.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "steps", "cycle", "theirs"),
    [
        (5.0, 100, 30, 2.9351724737875755),
        (20.0, 100, 30, 0.6323075922589045),
        (5.0, 1890, 189, 4.304929256540027),
        (20.0, 1890, 189, 0.9118445799464587),
        (5.0, 37, 5, 5.545777128768927),
    ],
)
def test_the_account_is_one_gaussian_mechanism(sigma, steps, cycle, theirs):
    ours = pld(ledger_of(sigma, steps, cycle), 1e-5)
    assert ours == pytest.approx(theirs, abs=1e-6)
    accountant = PLDAccountant()
    moved = np.linalg.norm(matrix(DECAYS, WEIGHTS, steps)[:, ::cycle].sum(1))
    accountant.compose(dp_accounting.GaussianDpEvent(sigma / moved))
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), abs=1e-6)
    assert ours <= rdp(ledger_of(sigma, steps, cycle), 1e-5) < 1.3 * ours


def test_sampling_amplifies_nothing_and_part_of_a_run_costs_less():
    whole = pld(ledger_of(5.0, 300, 30), 1e-5)
    assert pld(ledger_of(5.0, 300, 30, rate=0.01), 1e-5) == whole
    assert pld(ledger_of(5.0, 300, 30).first(120), 1e-5) == pld(ledger_of(5.0, 120, 30), 1e-5)
    assert pld(ledger_of(5.0, 120, 30), 1e-5) < whole < pld(ledger_of(5.0, 300, 29), 1e-5)


def test_several_noise_multipliers_and_other_releases_have_no_account():
    (step, _), *_ = ledger_of(5.0, 300, 30).entries
    other = Release("counts", GaussianMechanism(10.0))
    beside = Ledger().after(dataclasses.replace(step, releases=(*step.releases, other)), 300)
    (more, _), *_ = ledger_of(6.0, 300, 30).entries
    for accountant in (pld, rdp):
        for book in (beside, ledger_of(5.0, 300, 30).after(more, 300)):
            with pytest.raises(Unaccountable, match="single noise multiplier"):
                accountant(book, 1e-5)
    # What is released once, on another occasion, composes.
    once = ledger_of(5.0, 300, 30).after(Step(Poisson(1.0), (other,)))
    assert pld(once, 1e-5) > pld(ledger_of(5.0, 300, 30), 1e-5)


@pytest.mark.parametrize(
    ("decays", "weights"),
    [((1.0,), (0.1,)), ((0.5,), (-0.1,)), ((0.5,), (1.1,)), ((0.5,), ()), ((math.nan,), (0.1,))],
)
def test_matrices_without_a_known_sensitivity_are_refused(decays, weights):
    with pytest.raises(UserError, match=r"decays must lie in \[0, 1\)"):
        ToeplitzGaussian(1.0, decays, weights)


def test_a_step_declares_its_matrix_to_a_ledger_that_comes_back_from_a_record():
    method = dp_mf_blt(0.5, 2, "abadi", "flat").bind(problem(steps=60, cycle=20))
    (release,) = method.releases(1.1)
    assert release.mechanism == ToeplitzGaussian(1.1, *optimal(2, 60, 20))
    assert Buffers(method.noise.decays, method.noise.weights) == optimal(2, 60, 20)
    book = ledger_of(1.0, 100, 4)
    assert from_plain(json.loads(json.dumps(to_plain(book)))) == book
    assert json.loads(json.dumps(to_plain(book))) == to_plain(book)


@pytest.mark.parametrize(("size", "batch"), [(400, 20), (410, 40), (30, 30), (1500, 64)])
def test_each_example_is_in_one_batch_of_each_epoch_at_the_same_place(stream_of, size, batch):
    sampler, stream = PoissonSampler(size, batch, "example", None), stream_of(7)
    steps = sampler.steps_per_epoch
    assert steps == math.ceil(size / batch)
    assert sampler.law == Poisson(1.0, "example", steps)
    assert sampler.expected_batch_size == pytest.approx(size / steps)
    epochs = [
        [indices.tolist() for indices in itertools.islice(sampler.batches(size, stream), steps)]
        for _ in range(3)
    ]
    assert epochs[0] == epochs[1] == epochs[2]
    assert sorted(itertools.chain(*epochs[0])) == list(range(size))


@pytest.mark.parametrize("name", ["truncated", "allocation"])
def test_other_sampling_laws_are_refused(name):
    with pytest.raises(UserError, match="correlated over all steps: use sampler=poisson"):
        make_sampler(name, 400, 20, "example", None)
