"""DP-SAT and BAM: what they are when they do nothing, and that they do what they say."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.step.gradients import ENGINES, make_engine
from dpbench.step.gradients.penalised import penalised
from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.step.mechanism.schedules import Linear
from dpbench.step.methods.bam import bam, bam_exact
from dpbench.step.methods.dpsat import dpsat
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.system.errors import UserError
from tests.steps import noiseless, theta

METHODS = {"dpsat": dpsat, "bam": bam, "bam_exact": bam_exact}
START = ReleasedState(0, 1, None)


def half_squares(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs[:, 0] - targets).square() / 2


def linear_model(examples: int = 6):
    """A linear model w.x in float64, its engine, and a batch whose third example fits exactly."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(examples, 4, dtype=torch.float64, generator=draw)
    inputs[2] = 0
    targets = torch.arange(examples) - 2
    batch = Batch(inputs, targets, torch.zeros_like(targets))
    model = nn.Linear(4, 1, bias=False).double()
    return model, make_engine("auto", model, half_squares, batch), batch


def after(step, batches) -> torch.Tensor:
    for batch in batches:
        step(batch)
    return step.engine.parameters.theta.detach().clone()


@pytest.mark.parametrize("name", METHODS)
def test_lambda_moves_the_run_and_a_small_one_moves_it_little(name, step_of, batch_of):
    batches = [batch_of(8, seed=seed) for seed in range(3)]
    plain = after(step_of(dpsgd(1.0, "corrected")), batches)
    little, much = (
        (after(step_of(METHODS[name](1.0, weight)), batches) - plain).norm()
        for weight in (1e-6, 1e-2)
    )
    assert 0 < little < 1e-3 * much


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", [bam, bam_exact])
def test_the_gradient_of_a_linear_model_is_the_closed_form(make, engine):
    # r = w.x - y: g = r x, and one step of length lambda up the loss makes r + lambda sign(r) |x|.
    model, _, batch = linear_model()
    made = make_engine(engine, model, half_squares, batch)
    residuals = (model(batch.inputs)[:, 0] - batch.targets).detach()
    lengths = batch.inputs.norm(dim=1)
    expected = (residuals + 0.3 * residuals.sign() * lengths).unsqueeze(1) * batch.inputs
    gradients = make(1.0, 0.3).gradient(made, batch, None, START)
    assert torch.allclose(gradients.stack(), expected)
    assert torch.allclose(gradients.losses, residuals.square() / 2)


def curved_model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(1, 3, 3), nn.GroupNorm(3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3))
        ).double()
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(5, 1, 4, 4, dtype=torch.float64, generator=draw)
    targets = torch.arange(5) % 3
    batch = Batch(inputs, targets, torch.zeros_like(targets))
    loss = nn.CrossEntropyLoss(reduction="none")
    return model, make_engine("ghost", model, loss, batch), batch


def test_bam_and_bam_exact_agree_to_second_order_in_lambda():
    _, engine, batch = curved_model()

    def apart(weight: float) -> torch.Tensor:
        pair = (make(1.0, weight).gradient(engine, batch, None, START) for make in (bam, bam_exact))
        ascended, exact = (gradients.stack() for gradients in pair)
        return (ascended - exact).norm(dim=1)

    slope = torch.log2(apart(2e-3) / apart(1e-3))
    assert ((slope - 2).abs() < 0.1).all()


def test_bam_exact_is_the_gradient_of_the_loss_plus_the_length_of_its_gradient():
    model, engine, batch = curved_model()
    for i, row in enumerate(penalised(engine, batch, 0.7).stack()):
        loss = engine.loss(model(batch.inputs[i : i + 1]), batch.targets[i : i + 1]).sum()
        longer = loss + 0.7 * engine.parameters.gradient(loss, differentiable=True).norm()
        assert torch.allclose(row, engine.parameters.gradient(longer))


@pytest.mark.parametrize("make", [bam, bam_exact])
def test_views_are_averaged_before_the_ascent(make):
    model, engine, batch = curved_model()
    several = make_engine("ghost", model, engine.loss, pairs(batch), views=2)
    for name in ("loop", "vmap"):
        reference = make_engine(name, model, engine.loss, pairs(batch), views=2)
        ours, theirs = (
            make(1.0, 0.1).gradient(e, pairs(batch), None, START) for e in (several, reference)
        )
        assert torch.allclose(ours.stack(), theirs.stack())
        assert torch.allclose(ours.norms, theirs.norms)


def pairs(batch: Batch) -> Batch:
    """Every example with a second view."""
    views = torch.stack([batch.inputs, batch.inputs.flip(-1) + 0.1], 1)
    return dataclasses.replace(batch, inputs=views)


@pytest.mark.parametrize("make", [bam, bam_exact])
def test_a_gradient_of_zero_has_no_direction_and_stays_zero(make):
    _, engine, batch = linear_model()
    rows = make(1.0, 0.3).gradient(engine, batch, None, START).stack()
    assert rows.isfinite().all()
    assert (rows[2] == 0).all()
    assert (rows[0] != 0).all()


@pytest.mark.parametrize("make", [bam, bam_exact])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_example_that_is_not_finite_spoils_no_other(make, bad):
    _, engine, batch = curved_model()
    spoilt = dataclasses.replace(batch, inputs=batch.inputs.clone())
    spoilt.inputs[1] = bad
    ours, sound = (make(1.0, 0.3).gradient(engine, b, None, START) for b in (spoilt, batch))
    others = torch.tensor([0, 2, 3, 4])
    assert not ours.norms[1].isfinite()
    assert torch.allclose(ours.norms[others], sound.norms[others])


@pytest.mark.parametrize("lr", [0.0, 0.1])
def test_dpsat_in_several_physical_batches_is_dpsat_in_one(lr, step_of, batch_of):
    batches = [batch_of(8, seed=seed) for seed in range(4)]
    whole, parts = (step_of(dpsat(1.0, 0.5), physical=size, lr=lr) for size in (None, 3))
    start = theta(whole)
    ends = [after(step, batches) for step in (whole, parts)]
    assert torch.allclose(*ends, rtol=1e-12, atol=1e-12)
    # Nothing of the shift is left behind: with a learning rate of 0 the weights never move.
    assert torch.equal(ends[1], start) == (lr == 0)


def test_dpsat_takes_gradients_one_length_along_the_last_private_gradient(batch_of, step_of):
    step = step_of(dpsat(1.0, 0.5))
    first, second = batch_of(8, seed=0), batch_of(8, seed=1)
    method, engine = step.method, step.engine
    assert step.released.gradient is None
    untouched = method.gradient(engine, first, None, step.released)
    assert torch.equal(untouched.stack(), engine(first).stack())
    step(first)
    released = engine.parameters.theta.grad.clone()
    assert torch.equal(step.released.gradient, released)
    seen = method.gradient(engine, second, None, step.released)
    assert torch.allclose(
        seen.stack(), engine(second, 0.5 * released / released.norm()).stack(), rtol=1e-12
    )


@pytest.mark.parametrize("name", METHODS)
def test_noise_is_drawn_once_for_the_sum_and_not_as_printed_for_each_example(
    name, step_of, batch_of, variance_p
):
    """Line 5 of Algorithm 2 has a draw inside the sum: sqrt(l) times what is accounted for."""
    method = METHODS[name](0.5, 0.1)
    silent = noiseless(method)
    noisy, plain = (step_of(m, multiplier=1.3, expected=8.0, lr=0.0) for m in (method, silent))
    for step in (noisy, plain):
        step(batch_of(8))
    noise = noisy.engine.parameters.theta.grad - plain.engine.parameters.theta.grad
    assert variance_p(noise, 1.3 * 0.5 / 8) > 1e-3
    assert variance_p(noise, math.sqrt(8) * 1.3 * 0.5 / 8) < 1e-6


def test_a_schedule_of_lambda_follows_the_progress_of_the_run():
    _, engine, batch = curved_model()
    rising = bam(1.0, Linear(0.0, 0.2)).gradient
    half = rising(engine, batch, None, ReleasedState(1, 2, None)).stack()
    assert torch.equal(rising(engine, batch, None, START).stack(), engine(batch).stack())
    assert torch.equal(half, bam(1.0, 0.1).gradient(engine, batch, None, START).stack())


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("weight", [math.nan, True, "large"])
def test_a_lambda_that_is_no_number_is_refused(name, weight):
    with pytest.raises(UserError, match=r"method\.lambda_ must be a number or a schedule"):
        METHODS[name](1.0, weight)
