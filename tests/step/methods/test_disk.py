"""DiSK: the look-ahead and the filter against the printed steps, and the sensitivity of both."""

import pytest
import torch

from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.step.mechanism.state import restore_state, state_of
from dpbench.step.methods.disk import Kalman, disk
from tests.problems import START, problem
from tests.steps import noiseless, theta


def made(kappa=0.7, gamma=None, bound=0.5, **changes):
    return disk(bound, kappa, gamma, **{"clip": "abadi", "style": "flat", **changes})


def rows_at(step, batch, shift):
    return step.engine(batch, shift).stack()


# The authors' README (Opacus, research/disk_optimizer): the combination clipped as one, then the
# filter, then a step of the optimiser.
@pytest.mark.parametrize(("kappa", "gamma"), [(0.7, None), (0.4, None), (0.7, 0.5), (0.5, 2.0)])
def test_steps_are_those_that_are_printed(step_of, batch_of, kappa, gamma):
    step = step_of(noiseless(made(kappa, gamma)), expected=4.0, lr=0.3)
    before, filtered = theta(step), None
    for seed in range(4):
        batch, now = batch_of(5, seed=seed), theta(step)
        ahead = (1 - kappa) / kappa if gamma is None else gamma
        c = (1 - kappa) / (kappa * ahead)
        rows = c * rows_at(step, batch, ahead * (now - before)) + (1 - c) * rows_at(
            step, batch, torch.zeros_like(now)
        )
        total = sum(row * min(1, 0.5 / float(row.norm())) for row in rows) / 4
        filtered = total if filtered is None else (1 - kappa) * filtered + kappa * total
        step(batch)
        assert torch.allclose(theta(step), now - 0.3 * filtered, rtol=1e-9, atol=1e-12)
        before = now


@pytest.mark.parametrize("style", ["flat", "layerwise"])
@pytest.mark.parametrize("gamma", [None, 0.1, 5.0])
def test_one_example_moves_the_clipped_sum_by_at_most_the_bound(step_of, batch_of, gamma, style):
    method = made(0.4, gamma, style=style).bind(problem())
    step = step_of(method)
    draw = torch.Generator().manual_seed(1)
    elsewhere = theta(step) + torch.randn(len(theta(step)), generator=draw, dtype=torch.float64)
    gradient = method.gradient.advance(elsewhere, None)
    released, batch = ReleasedState(1, 2, torch.ones_like(elsewhere)), batch_of(7)
    batch.inputs.mul_(100)

    def total(part):
        gradients = gradient(step.engine, part, step.clip, released)
        return step.clipped_sum(gradients, part).total

    for i in range(7):
        rest = batch.each(lambda t, i=i: torch.cat([t[:i], t[i + 1 :]]))
        moved = (total(batch) - total(rest)).norm()
        assert moved <= 0.5 * (1 + 1e-9)


def test_losses_are_those_of_the_examples(step_of, batch_of):
    step, batch = step_of(made(0.5, 2.0)), batch_of(4)
    step(batch)
    at_theta = step.engine(batch).losses
    assert torch.allclose(step(batch).losses, at_theta)


@pytest.mark.parametrize("gamma", [None, 2.0])
def test_an_empty_batch_after_a_step_is_a_step(step_of, batch_of, gamma):
    step = step_of(made(0.5, gamma))
    step(batch_of(3))
    start = theta(step)
    step(batch_of(0))
    assert theta(step).isfinite().all()
    assert not torch.equal(theta(step), start)


def test_a_filter_comes_back_from_its_state():
    start, rows = Kalman(0.3), torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    update = start.advance(rows[0], 1.0, rows[1], START)
    back = restore_state(start, state_of(update), torch.device("cpu"))
    ours, theirs = (one.advance(rows[2], 1.0, rows[3], START) for one in (back, update))
    assert torch.equal(ours(rows[0], rows[0]), theirs(rows[0], rows[0]))
    assert state_of(start) == {}
