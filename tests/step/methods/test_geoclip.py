"""GeoClip: its coordinates by the paper's algorithm, their optimality, and what an example can move
in them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.step.methods.geoclip import Geometry, geoclip
from tests.problems import START
from tests.steps import gradients_of, moves, noiseless, theta

SIZE, BATCH, BOUND = 7, 20.0, 0.6
AT = START._replace(expected_batch_size=BATCH)


def after(releases, rank=SIZE):
    """The geometry after these noisy means [T, D], and what it restored of them [T, D]."""
    geometry, restored = Geometry(BOUND, rank, mean_decay=0.8, covariance_decay=0.9), []
    for noisy in releases:
        geometry = geometry.advance(noisy, 1.0, torch.zeros_like(noisy), AT)
        restored.append(geometry(noisy, noisy))
    return geometry, torch.stack(restored)


def means(seed, steps=9):
    """Noisy means [T, D] whose variances differ, in directions that are no axes."""
    rng = np.random.default_rng(seed)
    spread = np.logspace(0, -3, SIZE)
    return torch.tensor(0.05 * rng.normal(size=(steps, SIZE)) * spread @ rng.normal(size=(7, SIZE)))


def by_the_paper(releases):
    """M, a and the restored gradients [T, D] of Algorithm 1, in numpy.

    M is turned back by the eigenvectors: noise and norms are the same in all turned coordinates.
    """
    a, covariance, most = np.zeros(SIZE), BOUND**2 / SIZE * np.eye(SIZE), BOUND**2 / SIZE
    m, restored = np.eye(SIZE) / BOUND, []
    for noisy in releases.numpy():
        gradient = np.linalg.inv(m) @ noisy / BOUND + a
        restored.append(gradient)
        covariance = 0.9 * covariance + BATCH * 0.1 * np.outer(gradient - a, gradient - a)
        a = 0.8 * a + 0.2 * gradient
        values, vectors = np.linalg.eigh(covariance)
        values = values.clip(1e-15 * most, most)
        m = vectors @ np.diag(values**-0.25) @ vectors.T / np.sqrt(np.sqrt(values).sum())
    return m, a, np.stack(restored)


@pytest.mark.parametrize("seed", range(4))
def test_the_coordinates_are_those_of_the_paper(seed):
    releases, some = means(seed), means(9)
    geometry, restored = after(releases)
    m, a, expected = by_the_paper(releases)
    assert restored.numpy() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    ours = geometry.transformed(some).numpy()
    assert ours == pytest.approx(BOUND * (some.numpy() - a) @ m.T, rel=1e-8, abs=1e-10)


def matrix(geometry):
    """W [D, D]."""
    return geometry.transformed(torch.eye(SIZE, dtype=torch.float64) + geometry.mean).numpy().T


def covariance(geometry):
    """S D/R^2 [D, D]."""
    axes, variances = geometry.axes.numpy(), geometry.variances.numpy()
    return axes * variances @ axes.T + float(geometry.rest) * np.eye(SIZE)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, SIZE), st.sampled_from([1e-3, 1.0, 1e3]))
def test_no_coordinate_shrinks_and_no_noise_is_larger_than_that_of_dpsgd(seed, rank, scale):
    geometry, _ = after(scale * means(seed), rank)
    values = np.linalg.eigvalsh(matrix(geometry))
    assert values.min() >= 1 - 1e-9
    assert np.linalg.norm(np.linalg.inv(matrix(geometry))) <= SIZE**0.5 * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_no_other_coordinates_have_less_noise_for_the_same_spread_of_gradients(seed):
    """Theorem 2: the least tr((M^T M)^-1) of all M with tr(M S M^T) at most 1."""
    geometry, _ = after(0.1 * means(seed))  # so small that no variance is cut off
    s, w, rng = covariance(geometry), matrix(geometry), np.random.default_rng(seed)
    assert np.trace(w @ s @ w.T) == pytest.approx(SIZE)
    least = np.trace(np.linalg.inv(w.T @ w))
    for size in (1e-3, 0.1, 1.0):
        for _ in range(20):
            other = w + size * rng.normal(size=w.shape)
            other *= (SIZE / np.trace(other @ s @ other.T)) ** 0.5
            assert np.trace(np.linalg.inv(other.T @ other)) >= least * (1 - 1e-9)


def test_a_rank_that_suffices_is_exact_and_a_lower_one_keeps_the_trace():
    releases = 0.1 * means(0, steps=4)
    (exact, restored), (enough, same) = (after(releases, rank) for rank in (SIZE, 4))
    assert torch.allclose(restored, same, rtol=1e-9)
    assert matrix(enough) == pytest.approx(matrix(exact), rel=1e-7)
    for rank in (1, 2, 3):
        first, _ = after(releases[:1], rank)
        assert covariance(first) == pytest.approx(covariance(after(releases[:1])[0]))
        again = first.advance(releases[1], 1.0, releases[1], AT)
        change = (again.gradient - first.mean) * (SIZE * BATCH) ** 0.5 / BOUND
        grown = 0.9 * np.trace(covariance(first)) + 0.1 * float(change @ change)
        assert np.trace(covariance(again)) == pytest.approx(grown)


def moved_step(step_of, batch_of, rank):
    """A step whose coordinates have moved far from the parameters' own."""
    step = step_of(geoclip(0.5, rank, 0.5, 0.5), multiplier=0.3, expected=24.0)
    for seed in range(4):
        step(batch_of(24, seed=seed))
    return step


@pytest.mark.parametrize("rank", [2, 30])
def test_an_example_moves_the_sum_by_at_most_the_bound(step_of, batch_of, rank):
    """500 neighbours."""
    moved = moves(moved_step(step_of, batch_of, rank), batch_of)
    assert 0.5 * (1 - 1e-9) < max(moved) <= 0.5 * (1 + 1e-9)


def test_coordinates_move_by_releases_and_not_by_the_batch(step_of, batch_of):
    step, batch = moved_step(step_of, batch_of, 20), batch_of(9)
    rows, plain = gradients_of(step, batch).stack(), step.engine(batch).stack()
    assert not torch.allclose(rows, plain, rtol=0.1)
    assert torch.allclose(rows, step.update.transformed(plain))
    alone = torch.cat([gradients_of(step, one).stack() for one in batch.split(1)])
    assert torch.allclose(alone, rows, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("number", [0, 3, 24])
def test_the_mean_is_added_back_once_whatever_the_size_of_the_batch(step_of, batch_of, number):
    """Without noise, a batch of examples whose gradients are all a restores a."""
    step = step_of(noiseless(geoclip(0.5, 20, 0.9, 0.9)), expected=24.0, lr=1.0)
    for seed in range(3):
        step(batch_of(24, seed=seed))
    geometry, start = step.update, theta(step)
    noisy = torch.zeros_like(start)
    step.update = geometry.advance(noisy, 0.0, start, step.released)
    assert torch.allclose(step.update(noisy, start), geometry.mean)
    step.update = geometry
    step(batch_of(0))
    assert torch.allclose(theta(step), start - geometry.mean)
