"""Noise with a banded inverse: C by numpy's inverse, its sensitivity by brute force, its noise, its
account, and what it is at its special cases."""

import itertools
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
from dpbench.privacy.ledger import InverseToeplitzGaussian, Ledger, Poisson, Release, Step
from dpbench.privacy.toeplitz import column_norms, inverse_encoded, inverse_sensitivity, sensitivity
from dpbench.step.mechanism.state import restore_state, state_of
from dpbench.step.methods.dp_mf_inverse import (
    InverseBandedGaussian,
    dp_lambda_cgd,
    dp_mf_bisr,
    inverse_square_root,
)
from dpbench.system.errors import UserError
from tests.problems import problem

STEPS = 11
CASES = [((0.7,), True), ((0.7,), False), (inverse_square_root(4), False)]
cases = pytest.mark.parametrize(("taken", "normalised"), CASES)


def matrix(taken, normalised, horizon, steps=None):
    """C, by numpy's inverse of a banded matrix, over the first steps of a horizon."""
    inverse = np.eye(horizon)
    for below, share in enumerate(taken, 1):
        inverse -= share * np.eye(horizon, k=-below)
    c = np.linalg.inv(inverse)
    c = c / np.linalg.norm(c, axis=0) if normalised else c
    return c[:steps, :steps]


def ledger_of(multiplier, steps, cycle, taken, normalised):
    law = InverseToeplitzGaussian(multiplier, taken, normalised, steps)
    step = Step(Poisson(1.0, "example", cycle), (Release("gradient sum", law),))
    return Ledger().after(step, steps)


def noise_of(monkeypatch, taken, normalised):
    """The noise of unit draws, exactly: coordinate s has the draw 1 in step s, 0 in all others."""
    units = iter(torch.eye(STEPS, dtype=torch.float64))
    monkeypatch.setattr("dpbench.methods.dp_mf_inverse.draws", lambda *_: next(units).clone())
    noise, rows = InverseBandedGaussian(taken=taken, normalised=normalised, horizon=STEPS), []
    for _ in range(STEPS):
        total = torch.zeros(STEPS, dtype=torch.float64)
        noise = noise.advance(total, None)
        rows.append(noise.correlated[0])
    return torch.stack(rows).numpy()


@cases
def test_rows_are_encoded_by_the_matrix_and_noise_by_its_inverse(taken, normalised, monkeypatch):
    c = matrix(taken, normalised, STEPS)
    rows = np.random.default_rng(0).normal(size=STEPS)
    over = column_norms(taken, STEPS) if normalised else np.ones(STEPS)
    assert inverse_encoded(taken, rows / over) == pytest.approx(c @ rows)
    assert noise_of(monkeypatch, taken, normalised) == pytest.approx(np.linalg.inv(c))


def test_more_bands_are_the_inverse_square_root_of_the_prefix_sum():
    root = np.tril(np.ones((STEPS, STEPS)))
    c = matrix(inverse_square_root(STEPS), False, STEPS)
    assert c @ c == pytest.approx(root)


def patterns(steps, apart):
    """All sets of steps that are at least so many apart."""
    for number in range(1, steps + 1):
        for turns in itertools.combinations(range(steps), number):
            if all(b - a >= apart for a, b in itertools.pairwise(turns)):
                yield list(turns)


shares = st.floats(0, 0.99)


@settings(max_examples=25, deadline=None)
@given(shares, st.booleans(), st.integers(1, 9), st.integers(0, 4), st.integers(1, 4))
def test_the_sensitivity_is_the_largest_over_all_participations(
    share, normalised, steps, later, apart
):
    c = matrix((share,), normalised, steps + later, steps)
    by_force = max(np.linalg.norm(c[:, turns].sum(1)) for turns in patterns(steps, apart))
    ours = inverse_sensitivity((share,), normalised, steps + later, steps, apart)
    assert ours == pytest.approx(by_force, rel=1e-9)


@pytest.mark.parametrize("bands", [1, 2, 3, 5, 8])
def test_the_sensitivity_of_the_square_root_is_the_largest_too(bands):
    taken = inverse_square_root(bands)
    c = matrix(taken, False, 9)
    for apart in (1, 2, 4):
        by_force = max(np.linalg.norm(c[:, turns].sum(1)) for turns in patterns(9, apart))
        assert inverse_sensitivity(taken, False, 9, 9, apart) == pytest.approx(by_force)


@cases
def test_an_example_moves_the_encoded_sums_by_at_most_the_sensitivity(taken, normalised):
    """500 neighbours: gradients of any directions and norms up to 1, at any of its turns or not."""
    rng, cycle, c = np.random.default_rng(0), 4, matrix(taken, normalised, STEPS)
    bound = inverse_sensitivity(taken, normalised, STEPS, STEPS, cycle)
    moved = []
    for number in range(500):
        x = np.zeros((STEPS, 5))
        x[number % cycle :: cycle] = rng.normal(size=5) + rng.normal(size=(1, 5)) * (number % 3)
        x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
        moved.append(np.linalg.norm(c @ (x * (rng.random((STEPS, 1)) < 0.8))))
    assert 0.8 * bound < max(moved) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_one_band_is_a_buffered_matrix_and_none_is_independent_noise(share, monkeypatch):
    about = (300, 30)
    ours = inverse_sensitivity((share,), False, 300, *about)
    assert ours == pytest.approx(sensitivity((share,), (share,), *about))
    assert inverse_sensitivity((0.0,), True, 300, *about) == pytest.approx(math.sqrt(10))
    assert noise_of(monkeypatch, (0.0,), True) == pytest.approx(np.eye(STEPS))


def test_the_methods_declare_their_matrix_and_horizon_to_the_ledger():
    about = {"bound": 0.5, "clip": "abadi", "style": "flat"}
    for method, taken, normalised in (
        (dp_lambda_cgd(lambda_=0.4, **about), (0.4,), True),
        (dp_mf_bisr(bands=3, **about), (0.5, 0.125), False),
    ):
        (release,) = method.bind(problem(steps=60, cycle=20)).releases(1.1)
        assert release.mechanism == InverseToeplitzGaussian(1.1, taken, normalised, 60)


@pytest.mark.slow
@pytest.mark.parametrize("multiplier", [3.0, 8.0])
@pytest.mark.parametrize("about", [(40, 40), (40, 7), (300, 30)])
@cases
def test_the_account_is_one_gaussian_mechanism(taken, normalised, about, multiplier):
    steps, cycle = about
    ours = pld(ledger_of(multiplier, steps, cycle, taken, normalised), 1e-5)
    moved = np.linalg.norm(matrix(taken, normalised, steps)[:, ::cycle].sum(1))
    accountant = PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(multiplier / moved))
    assert ours == pytest.approx(accountant.get_epsilon(1e-5), abs=1e-6)
    assert ours <= rdp(ledger_of(multiplier, steps, cycle, taken, normalised), 1e-5) < 1.3 * ours


@cases
def test_part_of_a_run_costs_less(taken, normalised):
    whole = ledger_of(5.0, 300, 30, taken, normalised)
    assert pld(whole.first(90), 1e-5) < pld(whole, 1e-5)


def test_noise_comes_back_from_its_state(stream_of):
    start, stream = InverseBandedGaussian(taken=(0.5,), normalised=True, horizon=9), stream_of(0)
    noise, zeros = start, torch.zeros(5, dtype=torch.float64)
    for _ in range(6):
        noise = noise.advance(zeros, stream)
    back = restore_state(start, state_of(noise), torch.device("cpu"))
    at = stream.state_dict()
    one = noise.advance(zeros, stream)
    stream.load_state_dict(at)
    assert torch.equal(back.advance(zeros, stream).correlated, one.correlated)


@pytest.mark.parametrize("taken", [(1.0,), (-0.1,), (0.5, 0.5), (math.nan,)])
def test_what_is_taken_is_a_share(taken):
    with pytest.raises(UserError, match=r"must be shares in \[0, 1\), of sum below 1"):
        InverseToeplitzGaussian(1.0, taken, False, 10)


def test_matrices_without_a_known_sensitivity_are_refused():
    with pytest.raises(UserError, match="only if noise cancels that of one step before"):
        InverseToeplitzGaussian(1.0, (0.3, 0.1), True, 10)
    with pytest.raises(ValueError, match="increase down a column"):
        inverse_sensitivity((0.0, 0.9), False, 10, 10, 5)
    with pytest.raises(Unaccountable, match="increase down a column"):
        pld(ledger_of(5.0, 10, 5, (0.0, 0.9), False), 1e-5)
    (step, _), *_ = ledger_of(5.0, 10, 5, (0.5,), True).entries
    with pytest.raises(Unaccountable, match="normalised for 10 steps covers no more"):
        pld(Ledger().after(step, 11), 1e-5)


def test_its_error_is_near_that_of_the_best_buffers():
    """Prefix sums of noise at a given epsilon, over ten epochs of thirty steps."""

    def error(c, moved):
        sums = np.tril(np.ones((300, 300))) @ np.linalg.inv(c)
        return np.sqrt((sums**2).sum() / 300) * moved

    errors = {
        case: error(matrix(*case, 300), inverse_sensitivity(*case, 300, 300, 30))
        for case in (((0.95,), True), (inverse_square_root(4), False), ((0.0,), True))
    }
    cgd, bisr, independent = errors.values()
    assert max(cgd, bisr) < independent / 2
