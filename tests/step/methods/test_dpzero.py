"""DPZero: differences of losses along a direction, and steps as those of the paper's scalar."""

import itertools

import torch
from torch import nn

from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import ENGINES, Parameters
from dpbench.step.methods.dpzero import direction, dpzero, losses_on_both_sides
from tests.steps import noiseless, theta


def loss_at(step, batch, at):
    """The losses [B] with the parameters set, and set back."""
    parameters, before = step.engine.parameters, theta(step)
    with torch.no_grad():
        parameters.theta.copy_(at)
        losses = step.engine.loss(step.engine.model(batch.inputs), batch.targets)
        parameters.theta.copy_(before)
    return losses


def u_of(step):
    """u of the next step: the unit vector times sqrt(D)."""
    now, released = theta(step), step.released
    return direction(released.seed, released.steps_done, now) * len(now) ** 0.5


# Zhang et al. 2024: theta - lr (mean of clipped differences) u, in a loop over examples.
def test_steps_without_noise_are_those_of_the_paper(step_of, batch_of):
    bound, h = 0.7, 1e-3
    step, seen = step_of(noiseless(dpzero(bound, h)), expected=4.0, lr=0.3), []
    for seed in range(4):
        batch, now, u = batch_of(5, seed=seed), theta(step), u_of(step)
        ahead, behind = loss_at(step, batch, now + h * u), loss_at(step, batch, now - h * u)
        scalar = sum(
            max(-bound, min(bound, float((a - b) / (2 * h))))
            for a, b in zip(ahead, behind, strict=True)
        )
        step(batch)
        assert torch.allclose(theta(step), now - 0.3 * scalar / 4 * u, rtol=1e-6, atol=1e-9)
        seen.append(u)
    assert all(abs(float(u.norm()) - len(u) ** 0.5) < 1e-6 for u in seen)
    assert all(abs(float(a @ b)) < 0.3 * len(a) for a, b in itertools.pairwise(seen))


def test_a_difference_is_the_slope_without_a_backward_pass(step_of, batch_of, monkeypatch):
    step, batch = step_of(dpzero(1e6, 1e-4)), batch_of(6)
    u = u_of(step)
    slopes = step.engine(batch).dot(u)
    ours = step.method.gradient(step.engine, batch, step.clip, step.released)
    assert torch.allclose(ours.norms, slopes.abs(), rtol=1e-3, atol=1e-6)
    step = step_of(dpzero(1.0, 1e-3))

    def refuse(*_, **__):
        raise AssertionError("a backward pass")

    monkeypatch.setattr(torch.autograd, "grad", refuse)
    monkeypatch.setattr(torch.Tensor, "backward", refuse)
    step(batch_of(5))


def test_the_noise_of_a_step_is_one_number_of_the_stated_scale(step_of, batch_of):
    """theta moves by lr bound multiplier z u/expected, for one normal z."""
    bound, multiplier, draws = 2.0, 0.8, []
    step = step_of(dpzero(bound, 1e-3), expected=4.0, lr=0.5, multiplier=multiplier)
    empty = batch_of(5).each(lambda t: t[:0])
    for _ in range(400):
        now, u = theta(step), u_of(step)
        step(empty)
        moved = theta(step) - now
        along = float(moved @ u) / float(u @ u)
        assert torch.allclose(moved, along * u, rtol=1e-5, atol=1e-9)
        draws.append(along / (0.5 * bound * multiplier / 4))
    sample = torch.tensor(draws)
    assert abs(float(sample.mean())) < 0.2
    assert abs(float(sample.std()) - 1) < 0.12


def test_directions_follow_from_seed_and_step_and_dropout_is_alike_on_both_sides(batch_of):
    start = torch.zeros(9, dtype=torch.float64)
    one = direction(1, 0, start)
    assert torch.equal(one, direction(1, 0, start + 5))
    assert not torch.equal(one, direction(2, 0, start))
    assert not torch.equal(one, direction(1, 1, start))
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double().train()
    engine = ENGINES["ghost"](model, cross_entropy, Parameters(model))
    batch, nowhere = batch_of(6), torch.zeros(len(engine.parameters), dtype=torch.float64)
    ahead, behind = losses_on_both_sides(engine, batch, nowhere)
    later, _ = losses_on_both_sides(engine, batch, nowhere)
    assert torch.equal(ahead, behind)
    assert not torch.equal(ahead, later)


def test_losses_of_any_number_of_examples_take_one_pass_in_each_direction(batch_of):
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double().train()
    engine = ENGINES["ghost"](model, cross_entropy, Parameters(model))
    before = engine.parameters.theta.detach().clone()
    for step, number in enumerate((2, 7, 30)):
        losses_on_both_sides(engine, batch_of(number), direction(1, step, before))
        assert not engine.alone
    assert torch.equal(engine.parameters.theta, before)
