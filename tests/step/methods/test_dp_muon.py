"""DP-Muon: its direction by the paper's iteration in float64, by singular vectors, and by special
cases."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Size

from dpbench.step.methods.dp_muon import Muon, dp_muon, orthogonal
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.system.errors import UserError
from tests.problems import SHAPES, START, problem
from tests.steps import moves, theta

BFLOAT16 = 2.0**-7
FLAT = {"clip": "abadi", "style": "flat"}


def matrix(rows, columns, norm=3.0, seed=0):
    drawn = torch.tensor(np.random.default_rng(seed).normal(size=(rows, columns)))
    return norm * drawn / drawn.norm()


def by_the_paper(m, steps):
    """Y_q, with p_2 from its sum over (2s)!/(4^s s!^2) (1 - x)^s."""
    wide = m if m.shape[0] <= m.shape[1] else m.T
    y, one = wide / max(1, np.linalg.norm(wide)), np.eye(len(wide))
    for _ in range(steps):
        rest = one - y @ y.T
        y = (one + rest / 2 + 3 / 8 * rest @ rest) @ y
    return y if m.shape[0] <= m.shape[1] else y.T


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("norm", [0.3, 3.0])
@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (1, 7)])
def test_a_direction_is_the_papers_times_the_factor_of_torch(shape, norm, steps):
    m = matrix(*shape, norm)
    (ours,) = orthogonal([m], steps)
    expected = by_the_paper(m.numpy(), steps) * max(1, shape[0] / shape[1]) ** 0.5
    assert np.linalg.norm(ours.numpy() - expected) <= 3 * BFLOAT16 * np.linalg.norm(expected)
    assert ours.dtype == m.dtype


def test_many_steps_are_orthogonal():
    m = matrix(4, 9)
    (ours,) = orthogonal([m], 20)
    left, _, right = np.linalg.svd(m.numpy(), full_matrices=False)
    assert np.linalg.norm(ours.numpy() - left @ right) <= 3 * BFLOAT16 * 2


@pytest.mark.parametrize("steps", [0, 3])
def test_matrices_become_orthogonal_and_biases_keep_their_momentum(steps):
    update = Muon(0.5, steps).bind(problem())
    one, two = torch.tensor(np.random.default_rng(0).normal(size=(2, 579)))
    update = update.advance(one, 1.0, one, START).advance(two, 1.0, one, START)
    direction = update(two.clone(), one)
    sizes = [shape.numel() for shape in SHAPES]
    parts = zip(direction.split(sizes), (0.5 * one + two).split(sizes), SHAPES, strict=True)
    for ours, m, shape in parts:
        plain = len(shape) == 1 or not steps
        expected = m.view(shape) if plain else orthogonal([m.view(shape)], steps)[0]
        assert torch.allclose(ours.view(shape), expected)
    assert torch.equal(update(two.clone(), one), direction)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_no_newton_schulz_step_is_momentum(step_of, batch_of, momentum):
    """torch's Muon cannot hold this: with 0 steps it still scales, and rounds to bfloat16."""
    ours = step_of(dp_muon(0.5, momentum, 0, **FLAT))
    usual = step_of(dpsgd(0.5, "corrected"))
    for group in usual.optimizer.param_groups:
        group["momentum"] = momentum
    for seed in range(5):
        ours(batch_of(8, seed=seed))
        usual(batch_of(8, seed=seed))
    assert torch.allclose(theta(ours), theta(usual), rtol=1e-12, atol=1e-14)


def test_orthogonal_directions_move_all_others(step_of, batch_of):
    muon = dp_muon(0.5, 0.9, 5, **FLAT).bind(problem())
    ours, usual = (step_of(m) for m in (muon, dp_muon(0.5, 0.9, 0, **FLAT)))
    start = theta(ours)
    for step in (ours, usual):
        step(batch_of(8))
    assert not torch.allclose(theta(ours) - start, theta(usual) - start, rtol=0.1)


@pytest.mark.parametrize("style", ["layerwise", "flat"])
def test_an_example_moves_the_sum_by_at_most_the_bound(step_of, batch_of, style):
    """500 neighbours."""
    step = step_of(dp_muon(0.5, 0.9, 5, "abadi", style).bind(problem()), multiplier=0.3)
    step(batch_of(24))
    assert 0.45 < max(moves(step, batch_of)) <= 0.5 * (1 + 1e-9)


def test_a_model_without_matrices_is_refused_and_so_is_one_that_is_not_known():
    about = dataclasses.replace(problem(), shapes=(Size([3]), Size([4, 2, 3, 3])))
    with pytest.raises(UserError, match="trains no matrix"):
        dp_muon(0.5, 0.9, 5, **FLAT).bind(about)
    assert dp_muon(0.5, 0.9, 0, **FLAT).bind(about)
    update = Muon(0.9, 5).advance(torch.zeros(3), 1.0, torch.zeros(3), START)
    with pytest.raises(UserError, match="call bind"):
        update(torch.zeros(3), torch.zeros(3))
