"""DP-AdamBC: against the authors' steps in numpy, torch's Adam, and what the correction is for."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from dpbench.step.methods.dp_adam_bc import adam_bc, dp_adam_bc
from dpbench.step.methods.dpsgd import dpsgd
from tests.problems import START, problem
from tests.steps import noiseless

FLOOR = 1e-8


def means(steps, size, spread=1.0, mean=0.0):
    draw = torch.Generator().manual_seed(0)
    return mean + spread * torch.randn(steps, size, dtype=torch.float64, generator=draw)


def directions(rows, deviation, beta1=0.9, beta2=0.999, floor=FLOOR):
    """What the optimiser gets in each step."""
    update, found = adam_bc(beta1, beta2, floor), []
    for row in rows:
        update = update.advance(row, deviation, row, START)
        found.append(update(row.clone(), row))
    return torch.stack(found)


# Tang et al. 2024, Algorithm 1, as in the authors' `scale_by_adam_corr`.
@pytest.mark.parametrize("deviation", [0.0, 0.3, 2.0])
def test_steps_are_those_of_the_algorithm(deviation):
    rows, beta1, beta2 = means(30, 4), 0.8, 0.95
    m, v, expected = np.zeros(4), np.zeros(4), []
    for t, g in enumerate(rows.numpy(), 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        corrected = np.maximum(v / (1 - beta2**t) - deviation**2, FLOOR)
        expected.append(m / (1 - beta1**t) / np.sqrt(corrected))
    ours = directions(rows, deviation, beta1, beta2)
    assert torch.allclose(ours, torch.from_numpy(np.array(expected)), rtol=1e-9)


def test_without_noise_it_is_adam():
    rows, theta = means(25, 5), nn.Parameter(torch.zeros(5, dtype=torch.float64))
    adam, lr = torch.optim.Adam([theta], lr=0.01, eps=0), 0.01
    for row in rows:
        theta.grad = row.clone()
        adam.step()
    ours = -lr * directions(rows, 0.0, floor=1e-30).sum(0)
    assert torch.allclose(ours, theta.detach(), rtol=1e-9)


@pytest.mark.slow
def test_the_second_moment_is_that_of_the_gradient_and_not_of_the_noise():
    rows = means(4000, 50, spread=0.5, mean=0.2)
    update = adam_bc(0.9, 0.999, FLOOR)
    for row in rows:
        update = update.advance(row, 0.5, row, START)
    assert float(update.square.value.mean()) == pytest.approx(0.04, rel=0.1)
    uncorrected = update.square.value.mean() + 0.25
    assert float(uncorrected) == pytest.approx(0.29, rel=0.05)


def test_noise_that_changes_is_taken_off_step_by_step():
    rows, scales = means(6, 3), [1.0, 2.0, 0.5, 0.0, 1.0, 3.0]
    update, v = adam_bc(0.9, 0.5, FLOOR), torch.zeros(3, dtype=torch.float64)
    for row, scale in zip(rows, scales, strict=True):
        update = update.advance(row, scale, row, START)
        v = 0.5 * v + 0.5 * (row**2 - scale**2)
    assert torch.allclose(update.square.value, v / (1 - 0.5**6))


@pytest.mark.parametrize("style", ["flat", "layerwise"])
def test_a_step_takes_off_the_noise_that_it_added(step_of, batch_of, style):
    method = dp_adam_bc(0.5, 0.9, 0.999, FLOOR, "abadi", style).bind(problem())
    seen = []

    class Listening(type(method.update)):
        def advance(self, noisy, deviation, theta, released):
            seen.append(float(deviation))
            return super().advance(noisy, deviation, theta, released)

    update = Listening(method.update.mean, method.update.square, FLOOR)
    step = step_of(dataclasses.replace(method, update=update), multiplier=1.5, expected=8.0)
    for _ in range(2):
        step(batch_of(3))
    assert seen == pytest.approx([1.5 * 0.5 / 8] * 2)


def test_noise_alone_is_not_taken_for_a_gradient(step_of, batch_of):
    step = step_of(dp_adam_bc(0.5, 0.9, 0.99, FLOOR, "abadi", "flat"), multiplier=1.5, lr=0.0)
    squares = []
    for _ in range(60):
        step(batch_of(0))
        squares.append(step.update.square.value)
    scale = 1.5 * 0.5 / 8
    assert abs(float(torch.stack(squares[30:]).mean())) < 0.02 * scale**2


def test_without_noise_and_clipping_a_run_is_one_of_adam(step_of, batch_of):
    method = dp_adam_bc(1e9, 0.9, 0.999, 1e-30, "abadi", "flat")
    method = noiseless(method)
    ours = step_of(method, multiplier=0.0, expected=5.0, lr=0.01)
    usual = step_of(noiseless(dpsgd(1e9, "corrected")), expected=5.0)
    usual.optimizer = torch.optim.Adam([usual.engine.parameters.theta], lr=0.01, eps=0)
    for seed in range(4):
        ours(batch_of(5, seed=seed))
        usual(batch_of(5, seed=seed))
    thetas = [step.engine.parameters.theta.detach() for step in (ours, usual)]
    assert torch.allclose(*thetas, rtol=1e-6, atol=1e-9)
